#include "buffer.h"

#include <cstdlib>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace octavo {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

Buffer::Buffer(int64_t size) : size_(size) {
    const size_t num_bytes = static_cast<size_t>(size) * sizeof(float);
    const size_t alignment = num_bytes >= kHugePage ? kHugePage : kCacheLine;
    const size_t rounded = (num_bytes + alignment - 1) / alignment * alignment;
    data_ = static_cast<float*>(std::aligned_alloc(alignment, rounded));
    if (data_ == nullptr && size > 0) throw AllocationError(num_bytes);
#if defined(__linux__)
    // Only a wish: where huge pages are off, small ones do as well, if more slowly.
    if (alignment == kHugePage) madvise(data_, rounded, MADV_HUGEPAGE);
#endif
}

Buffer::~Buffer() { std::free(data_); }

}  // namespace octavo
