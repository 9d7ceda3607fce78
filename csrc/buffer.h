// Memory for numbers, aligned for vectors and, where large, for huge pages.

#pragma once

#include <cstddef>
#include <cstdint>
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

// Uninitialized memory for `free_aligned`. Throws AllocationError.
void* allocate_aligned(size_t num_bytes);
void free_aligned(void* memory);

// Owns `size` uninitialized numbers.
template <class Number>
class NumberBuffer {
  public:
    NumberBuffer() = default;
    // Throws AllocationError.
    explicit NumberBuffer(int64_t size)
        : data_(static_cast<Number*>(allocate_aligned(static_cast<size_t>(size) * sizeof(Number)))), size_(size) {}
    ~NumberBuffer() { free_aligned(data_); }
    NumberBuffer(NumberBuffer&& other) noexcept { swap(other); }
    NumberBuffer& operator=(NumberBuffer&& other) noexcept {
        swap(other);
        return *this;
    }

    Number* data() { return data_; }
    const Number* data() const { return data_; }
    int64_t size() const { return size_; }
    int64_t num_bytes() const { return size_ * static_cast<int64_t>(sizeof(Number)); }

    // Makes room for `size` numbers; what was there is lost.
    Number* reserve(int64_t size) {
        if (size > size_) *this = NumberBuffer(size);
        return data_;
    }

  private:
    void swap(NumberBuffer& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }

    Number* data_ = nullptr;
    int64_t size_ = 0;
};

using Buffer = NumberBuffer<float>;

}  // namespace octavo
