// Memory for floats, aligned for vectors and, where large, for huge pages.

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

// Owns `size` uninitialized floats.
class Buffer {
  public:
    Buffer() = default;
    // Throws AllocationError.
    explicit Buffer(int64_t size);
    ~Buffer();
    Buffer(Buffer&& other) noexcept { swap(other); }
    Buffer& operator=(Buffer&& other) noexcept {
        swap(other);
        return *this;
    }

    float* data() { return data_; }
    const float* data() const { return data_; }
    int64_t size() const { return size_; }

    // Makes room for `size` floats; what was there is lost.
    float* reserve(int64_t size) {
        if (size > size_) *this = Buffer(size);
        return data_;
    }

  private:
    void swap(Buffer& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }

    float* data_ = nullptr;
    int64_t size_ = 0;
};

}  // namespace octavo
