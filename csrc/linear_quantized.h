// Weights as whole numbers in groups of 32 along K that share a scale, multiplied with activations in whole numbers.

#pragma once

#include <memory>

#include "linear.h"

namespace octavo {

// The kind "int8": codes of eight bits.
std::unique_ptr<LinearWeight> pack_int8(ThreadPool& pool, const StoredMatrix& weight, const float* bias);

// The kind "int4": codes of four bits, with minima unless the stored codes have none either.
std::unique_ptr<LinearWeight> pack_int4(ThreadPool& pool, const StoredMatrix& weight, const float* bias);

}  // namespace octavo
