// Root mean square normalization.

#pragma once

#include "matrix.h"
#include "thread_pool.h"

namespace octavo {

// Normalizes each group of `group` columns; weight is [group]. out may be x.
void rms_norm(ThreadPool& pool, ConstMatrix x, const float* weight, int64_t group, float eps, Matrix out);

// One group, which is one row of a matrix: out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i].
void norm_row(const float* x, const float* weight, int64_t size, float eps, float* out);

}  // namespace octavo
