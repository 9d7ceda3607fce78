#include "population.h"

#include <algorithm>

#if defined(__linux__)
#include <sys/mman.h>
#include <sys/resource.h>
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#endif

namespace octavo {
namespace {

constexpr int64_t kStepBytes = int64_t{2} << 20;  // a huge page: what is touched, and waited for at the end, at once
constexpr int64_t kPageBytes = 4096;              // the smallest page that a system hands out

bool populate(char* memory, int64_t num_bytes) {
#if defined(__linux__)
    return madvise(memory, static_cast<size_t>(num_bytes), MADV_POPULATE_WRITE) == 0;
#else
    (void)memory, (void)num_bytes;
    return false;
#endif
}

}  // namespace

Population::Population(void* memory, int64_t num_bytes) {
    char* first = static_cast<char*>(memory);
    const int64_t step = std::min(kStepBytes, num_bytes);
    if (populate(first, step)) {
        thread_ = std::thread([this, first, step, num_bytes] { run(first + step, num_bytes - step); });
    } else {
        for (int64_t i = 0; i < num_bytes; i += kPageBytes) first[i] = 0;
    }
}

Population::~Population() {
    is_stopping_ = true;
    if (thread_.joinable()) thread_.join();
}

void Population::run(char* memory, int64_t num_bytes) {
#if defined(__linux__)
    setpriority(PRIO_PROCESS, 0, 19);  // of this thread alone
#endif
    for (int64_t i = 0; i < num_bytes && !is_stopping_; i += kStepBytes)
        populate(memory + i, std::min(kStepBytes, num_bytes - i));
}

}  // namespace octavo
