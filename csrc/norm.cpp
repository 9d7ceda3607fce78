// out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i] over each group (Zhang & Sennrich 2019).

#include "norm.h"

#include <cmath>

#include "simd.h"

namespace octavo {
namespace {

constexpr int64_t kMinRangeFloats = 8192;

float sum_of_squares(const float* x, int64_t size) {
    Vec sums[4] = {};  // four, for an addition takes four cycles
    int64_t i = 0;
    for (; i + 4 * kWidth <= size; i += 4 * kWidth) {
        for (int j = 0; j < 4; ++j) {
            const Vec v = load(x + i + j * kWidth);
            sums[j] = fma(v, v, sums[j]);
        }
    }
    for (; i < size; i += kWidth) {
        const Vec v = load_first(x + i, static_cast<int>(size - i < kWidth ? size - i : kWidth));
        sums[0] = fma(v, v, sums[0]);
    }
    return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

}  // namespace

void norm_row(const float* x, const float* weight, int64_t size, float eps, float* out) {
    const float scale = 1.0f / std::sqrt(sum_of_squares(x, size) / static_cast<float>(size) + eps);
    for (int64_t i = 0; i < size; ++i) out[i] = x[i] * scale * weight[i];
}

void rms_norm(ThreadPool& pool, ConstMatrix x, const float* weight, int64_t group, float eps, Matrix out) {
    pool.parallel_ranges(x.num_rows, kMinRangeFloats / (x.num_columns + 1) + 1, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t)
            for (int64_t i = 0; i < x.num_columns; i += group)
                norm_row(x.row(t) + i, weight, group, eps, out.row(t) + i);
    });
}

}  // namespace octavo
