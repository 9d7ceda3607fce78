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

}  // namespace

CodeGroup quantize_weights(const float* weights, int count, const CodeRange& range) {
    const auto [smallest, largest] = std::minmax_element(weights, weights + count);
    CodeGroup group{};
    if (range.has_minimum()) {
        group.minimum = float_of_half(half_of_float(*smallest));
        group.scale = scale_of(*largest - group.minimum, range.largest);
    } else {
        group.scale = scale_of(std::max(*largest, -*smallest), range.largest);
    }
    if (!(group.scale > 0)) return group;
    for (int k = 0; k < count; ++k) {
        const float code = std::nearbyint((weights[k] - group.minimum) / group.scale);
        group.codes[k] = static_cast<int8_t>(std::clamp<float>(code, range.smallest, range.largest));
    }
    return group;
}

}  // namespace octavo
