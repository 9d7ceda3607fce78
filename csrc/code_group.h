// Quantized weights one group at a time: how they are handed from a stored format to a packed one.

#pragma once

#include <cstdint>

namespace octavo {

constexpr int kGroupSize = 32;  // elements along K that share a scale, of weights and of activations

inline int64_t num_groups(int64_t num_k) { return (num_k + kGroupSize - 1) / kGroupSize; }

// What whole numbers the codes of a format are, and whether its groups have minima.
struct CodeRange {
    int smallest;
    int largest;
    bool has_minimum;
};

// 32 weights: scale * code + minimum each, both operations rounded.
struct CodeGroup {
    int8_t codes[kGroupSize];
    float scale;
    float minimum;  // 0 where the format has none
};

// The group nearest to `count` weights, at most 32, with a scale and a minimum that halves hold exactly. Codes that
// range from 0 have a minimum, those that range from -x to x have none.
CodeGroup quantize_weights(const float* weights, int count, const CodeRange& range);

}  // namespace octavo
