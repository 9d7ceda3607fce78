#include "buffer.h"

#include <cstdlib>
#include <mutex>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace octavo {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kChunk = 32 * kHugePage;  // what lasting pieces are cut from

constexpr size_t round_up(size_t size, size_t multiple) { return (size + multiple - 1) / multiple * multiple; }

}  // namespace

std::shared_ptr<void> allocate(size_t num_bytes) {
    const size_t alignment = num_bytes >= kHugePage ? kHugePage : kCacheLine;
    const size_t rounded = round_up(num_bytes, alignment);
    void* memory = std::aligned_alloc(alignment, rounded);
    if (memory == nullptr && num_bytes > 0) throw AllocationError(num_bytes);
#if defined(__linux__)
    // Only a wish: where huge pages are off, small ones do as well, if more slowly.
    if (alignment == kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);
#endif
    return {memory, std::free};
}

std::shared_ptr<void> allocate_lasting(size_t num_bytes) {
    if (num_bytes > kChunk / 2) return allocate(num_bytes);
    static std::mutex mutex;
    static std::weak_ptr<void> last_chunk;  // freed with the last of its pieces
    static size_t num_used;
    std::lock_guard lock(mutex);
    std::shared_ptr<void> chunk = last_chunk.lock();
    if (chunk == nullptr || num_used + num_bytes > kChunk) {
        last_chunk = chunk = allocate(kChunk);  // pages that are never touched take no memory
        num_used = 0;
    }
    char* piece = static_cast<char*>(chunk.get()) + num_used;
    num_used = round_up(num_used + num_bytes, kCacheLine);
    return {chunk, piece};
}

}  // namespace octavo
