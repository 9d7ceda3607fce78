// out[i] = x[i] cos - x[i + D/2] sin and out[i + D/2] = x[i + D/2] cos + x[i] sin, for i < D/2 (Su et al. 2021).

#include "rotary.h"

namespace octavo {
namespace {

constexpr int64_t kMinRangeFloats = 8192;

}  // namespace

void rotary(ThreadPool& pool, ConstMatrix x, const int32_t* positions, const RotaryTable& table, Matrix out) {
    const int64_t half = table.cos.num_columns;
    pool.parallel_ranges(x.num_rows, kMinRangeFloats / (x.num_columns + 1) + 1, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
            const float* cos = table.cos.row(positions[t]);
            const float* sin = table.sin.row(positions[t]);
            for (int64_t head = 0; head < x.num_columns; head += 2 * half) {
                const float *first = x.row(t) + head, *second = first + half;
                float* __restrict rotated = out.row(t) + head;
                for (int64_t i = 0; i < half; ++i) rotated[i] = first[i] * cos[i] - second[i] * sin[i];
                for (int64_t i = 0; i < half; ++i) rotated[half + i] = second[i] * cos[i] + first[i] * sin[i];
            }
        }
    });
}

}  // namespace octavo
