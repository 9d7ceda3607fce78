#include "code_group.h"

#include <algorithm>
#include <cmath>

#include "half.h"

namespace octavo {
namespace {

// x / by, rounded up to a half: with the next smaller one the largest code would not reach x.
float scale_of(float x, int by) {
    const float exact = x / static_cast<float>(by);
    const uint16_t half = half_of_float(exact);
    return float_of_half(float_of_half(half) < exact ? half + 1 : half);
}

// The one of up to 32 weights that `choose` prefers to all others.
template <class Choose>
float extreme(const float* weights, int count, const Choose& choose) {
    float padded[kGroupSize];
    std::fill(std::copy_n(weights, count, padded), padded + kGroupSize, weights[0]);
    Vec chosen = load(padded);
    for (int i = kWidth; i < kGroupSize; i += kWidth) chosen = choose(chosen, load(padded + i));
    return combine_lanes(chosen, choose);
}

}  // namespace

CodeGroup quantize_weights(const float* weights, int count, const CodeRange& range) {
    const float smallest = extreme(weights, count, [](auto a, auto b) { return a < b ? a : b; });
    const float largest = extreme(weights, count, [](auto a, auto b) { return a > b ? a : b; });
    CodeGroup group{};
    if (range.has_minimum()) {
        group.minimum = float_of_half(half_of_float(smallest));
        group.scale = scale_of(largest - group.minimum, range.largest);
    } else {
        group.scale = scale_of(std::max(largest, -smallest), range.largest);
    }
    if (!(group.scale > 0)) return group;
    for (int k = 0; k < count; ++k) {
        const float code = std::nearbyint((weights[k] - group.minimum) / group.scale);
        group.codes[k] = static_cast<int8_t>(std::clamp<float>(code, range.smallest, range.largest));
    }
    return group;
}

}  // namespace octavo
