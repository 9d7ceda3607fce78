// Memory for numbers, aligned for vectors and, where large, for huge pages.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>

namespace octavo {

// Too little memory, and how much was asked for.
class AllocationError : public std::bad_alloc {
  public:
    explicit AllocationError(size_t num_bytes)
        : message_("could not allocate " + std::to_string(num_bytes) +
                   " bytes; leave more memory free, or ask for less") {}
    const char* what() const noexcept override { return message_.c_str(); }

  private:
    std::string message_;
};

// Uninitialized memory, which is freed with the last pointer to it. Throws AllocationError.
std::shared_ptr<void> allocate(size_t num_bytes);

// The same for what lives as long as a model. Small pieces share huge pages: with pages of 4 KiB, looking them up costs
// a third of the time in which a matrix is read.
std::shared_ptr<void> allocate_lasting(size_t num_bytes);

// Owns `size` uninitialized numbers.
template <class Number>
class NumberBuffer {
  public:
    NumberBuffer() = default;
    // Throws AllocationError.
    explicit NumberBuffer(int64_t size) : NumberBuffer(allocate(static_cast<size_t>(size) * sizeof(Number)), size) {}
    NumberBuffer(NumberBuffer&& other) noexcept { swap(other); }
    NumberBuffer& operator=(NumberBuffer&& other) noexcept {
        swap(other);
        return *this;
    }

    // One that lives as long as a model. Throws AllocationError.
    static NumberBuffer lasting(int64_t size) {
        return NumberBuffer(allocate_lasting(static_cast<size_t>(size) * sizeof(Number)), size);
    }

    Number* data() { return static_cast<Number*>(memory_.get()); }
    const Number* data() const { return static_cast<const Number*>(memory_.get()); }
    int64_t size() const { return size_; }
    int64_t num_bytes() const { return size_ * static_cast<int64_t>(sizeof(Number)); }

    // Makes room for `size` numbers; what was there is lost.
    Number* reserve(int64_t size) {
        if (size > size_) *this = NumberBuffer(size);
        return data();
    }

  private:
    NumberBuffer(std::shared_ptr<void> memory, int64_t size) : memory_(std::move(memory)), size_(size) {}

    void swap(NumberBuffer& other) noexcept {
        std::swap(memory_, other.memory_);
        std::swap(size_, other.size_);
    }

    std::shared_ptr<void> memory_;
    int64_t size_ = 0;
};

using Buffer = NumberBuffer<float>;

}  // namespace octavo
