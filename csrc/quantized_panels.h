// Quantized weights as they are multiplied with.

#pragma once

#include <cstdint>

#include "code_format.h"

namespace octavo {

// Scales, and minima if there are any, of one group of a panel.
template <class Codes>
constexpr int kGroupHalves = (Codes::kRange.has_minimum ? 2 : 1) * kPanel;

// W [N, K] in panels of 16 outputs, and b, padded to whole panels. Somebody else owns them.
template <class Codes>
struct QuantizedPanels {
    const uint8_t* codes;    // [N / 16][K / 32][kGroupBytes]
    const uint16_t* scales;  // halves, [N / 16][K / 32][16], or [2][16]: scales, minima
    const float* bias;       // [N]; null: none
    int64_t num_outputs;
    int64_t num_groups;

    int64_t num_panels() const { return (num_outputs + kPanel - 1) / kPanel; }
    const uint8_t* group_codes(int64_t panel, int64_t g) const {
        return codes + (panel * num_groups + g) * Codes::kGroupBytes;
    }
    const uint16_t* group_scales(int64_t panel, int64_t g) const {
        return scales + (panel * num_groups + g) * kGroupHalves<Codes>;
    }
};

}  // namespace octavo
