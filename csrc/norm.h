// Root mean square normalization.

#pragma once

#include "matrix.h"
#include "thread_pool.h"

namespace octavo {

// Normalizes each group of `group` columns; weight is [group]. out may be x.
void rms_norm(ThreadPool& pool, ConstMatrix x, const float* weight, int64_t group, float eps, Matrix out);

}  // namespace octavo
