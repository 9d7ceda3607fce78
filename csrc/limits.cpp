#include "limits.h"

#include <atomic>

#include "simd.h"

namespace octavo {
namespace {

constexpr int kSums = 12;  // enough under way to fill two units for the four or five cycles that each takes

float multiply_add(int64_t num_rounds) {
    Vec sums[kSums];
    for (int i = 0; i < kSums; ++i) sums[i] = broadcast(static_cast<float>(i));
    const Vec factor = broadcast(0.999f), term = broadcast(0.001f);
    for (int64_t round = 0; round < num_rounds; ++round) {
#pragma GCC unroll 16
        for (int i = 0; i < kSums; ++i) sums[i] = fma(sums[i], factor, term);
    }
    for (int i = 1; i < kSums; ++i) sums[0] += sums[i];
    return sum(sums[0]);
}

float read(const float* data, int64_t size) {
    Vec sums[8] = {};
    for (int64_t i = 0; i + 8 * kWidth <= size; i += 8 * kWidth) {
#pragma GCC unroll 16
        for (int j = 0; j < 8; ++j) sums[j] += load(data + i + j * kWidth);
    }
    for (int j = 1; j < 8; ++j) sums[0] += sums[j];
    return sum(sums[0]);
}

}  // namespace

int64_t run_multiply_adds(ThreadPool& pool, int64_t num_rounds) {
    std::atomic<float> sink{0};
    pool.parallel_for(pool.num_threads(), [&](int64_t) { sink = multiply_add(num_rounds); });
    return 2 * kSums * kWidth * num_rounds * pool.num_threads();
}

float read_floats(ThreadPool& pool, const float* data, int64_t size) {
    std::atomic<float> sink{0};
    pool.parallel_ranges(size, int64_t{1} << 16,
                         [&](int64_t begin, int64_t end) { sink = read(data + begin, end - begin); });
    return sink;
}

}  // namespace octavo
