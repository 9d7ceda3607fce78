// What this machine can do at most: the yardsticks of benchmarks/kernels.py.

#pragma once

#include <cstdint>

#include "thread_pool.h"

namespace octavo {

// Runs multiply-adds on registers on every thread; returns how many floating-point operations those were.
int64_t run_multiply_adds(ThreadPool& pool, int64_t num_rounds);

// Reads `size` floats on all threads. What it returns only keeps compilers from leaving it out.
float read_floats(ThreadPool& pool, const float* data, int64_t size);

}  // namespace octavo
