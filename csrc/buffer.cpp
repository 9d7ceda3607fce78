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

void* allocate_aligned(size_t num_bytes) {
    const size_t alignment = num_bytes >= kHugePage ? kHugePage : kCacheLine;
    const size_t rounded = (num_bytes + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, rounded);
    if (memory == nullptr && num_bytes > 0) throw AllocationError(num_bytes);
#if defined(__linux__)
    // Only a wish: where huge pages are off, small ones do as well, if more slowly.
    if (alignment == kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);
#endif
    return memory;
}

void free_aligned(void* memory) { std::free(memory); }

}  // namespace octavo
