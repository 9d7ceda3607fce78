// Quantized weights one group at a time: how they are handed from a stored format to a packed one.

#pragma once

#include <cstdint>

namespace octavo {

constexpr int kGroupSize = 32;  // elements along K that share a scale, of weights and of activations

inline int64_t num_groups(int64_t num_k) { return (num_k + kGroupSize - 1) / kGroupSize; }

// What is added to each product of a scale and a code: nothing, a number of the group's own, or a multiple of the
// scale, which is what a zero point is: scale * (code - zero) = scale * code + scale * -zero.
enum class Minimum { kNone, kAny, kMultiple };

// What whole numbers the codes of a format are, and what minima its groups have.
struct CodeRange {
    int smallest;
    int largest;
    Minimum minimum;

    constexpr bool has_minimum() const { return minimum != Minimum::kNone; }
};

// 32 weights: scale * code + minimum each, both operations rounded.
struct CodeGroup {
    int8_t codes[kGroupSize];
    float scale;
    float minimum;  // 0 where the format has none; where it is a multiple of the scale, which one
};

// The group nearest to `count` weights, at most 32, with a scale and a minimum that halves hold exactly. Codes that
// range from 0 have a minimum, those that range from -x to x have none.
CodeGroup quantize_weights(const float* weights, int count, const CodeRange& range);

}  // namespace octavo
