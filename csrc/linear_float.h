// Weights as floats, multiplied with float32 activations.

#pragma once

#include <memory>

#include "linear.h"

namespace octavo {

// The kind "float32".
std::unique_ptr<LinearWeight> pack_float32(ThreadPool& pool, const StoredMatrix& weight, const float* bias);

// The kind "bfloat16": the upper halves of float32, widened again in registers.
std::unique_ptr<LinearWeight> pack_bfloat16(ThreadPool& pool, const StoredMatrix& weight, const float* bias);

}  // namespace octavo
