// Ops that look at each element, or at each row, alone.

#pragma once

#include "matrix.h"
#include "thread_pool.h"

namespace octavo {

// x + y
void add(ThreadPool& pool, ConstMatrix x, ConstMatrix y, Matrix out);

// silu(gate) * up, where gate is the left half of the columns. [T, 2F] -> [T, F].
void silu_mul(ThreadPool& pool, ConstMatrix gate_up, Matrix out);

// One row of it, `size` = F.
void silu_mul_row(const float* gate_up, int64_t size, float* out);

// x[rows]. The rows must exist.
void gather_rows(ThreadPool& pool, ConstMatrix x, const int32_t* rows, Matrix out);

}  // namespace octavo
