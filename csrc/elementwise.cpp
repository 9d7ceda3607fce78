#include "elementwise.h"

#include <algorithm>

#include "simd.h"

namespace octavo {
namespace {

// Calls function(t) for each row of out, in parallel where there is enough of them.
template <class Function>
void for_each_row(ThreadPool& pool, Matrix out, int64_t min_floats, const Function& function) {
    pool.parallel_ranges(out.num_rows, min_floats / (out.num_columns + 1) + 1, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) function(t);
    });
}

}  // namespace

void add(ThreadPool& pool, ConstMatrix x, ConstMatrix y, Matrix out) {
    for_each_row(pool, out, 16384, [&](int64_t t) {
        const float *a = x.row(t), *b = y.row(t);
        float* __restrict sum = out.row(t);
        for (int64_t i = 0; i < out.num_columns; ++i) sum[i] = a[i] + b[i];
    });
}

void silu_mul_row(const float* gate_up, int64_t size, float* out) {
    const float *gate = gate_up, *up = gate_up + size;
    int64_t i = 0;
    for (; i + kWidth <= size; i += kWidth) store(out + i, silu(load(gate + i)) * load(up + i));
    const int rest = static_cast<int>(size - i);
    if (rest > 0) store_first(out + i, silu(load_first(gate + i, rest)) * load_first(up + i, rest), rest);
}

void silu_mul(ThreadPool& pool, ConstMatrix gate_up, Matrix out) {
    for_each_row(pool, out, 4096, [&](int64_t t) { silu_mul_row(gate_up.row(t), out.num_columns, out.row(t)); });
}

void gather_rows(ThreadPool& pool, ConstMatrix x, const int32_t* rows, Matrix out) {
    for_each_row(pool, out, 16384,
                 [&](int64_t t) { std::copy(x.row(rows[t]), x.row(rows[t]) + x.num_columns, out.row(t)); });
}

}  // namespace octavo
