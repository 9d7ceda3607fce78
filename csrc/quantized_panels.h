// Quantized weights as they are multiplied with.

#pragma once

#include <cstdint>

#include "code_format.h"
#include "half.h"

namespace octavo {

// Scales, and minima if there are any, of what shares them in a panel.
template <class Codes>
constexpr int kGroupHalves = (Codes::kRange.has_minimum() ? 2 : 1) * kPanel;

// The minima that follow scales in memory, `scale` being what was loaded there.
template <class Codes>
inline Vec load_minimum(const uint16_t* halves, Vec scale) {
    const Vec minimum = load_halves(halves + kPanel);
    return Codes::kRange.minimum == Minimum::kMultiple ? scale * minimum : minimum;
}

// How many scales an output has where 2^shift groups that follow each other share one.
inline int64_t num_scales(int64_t num_groups, int shift) { return ((num_groups - 1) >> shift) + 1; }

// W [N, K] in panels of 16 outputs, and b, padded to whole panels. Somebody else owns them.
template <class Codes>
struct QuantizedPanels {
    const uint8_t* codes;    // [N / 16][K / 32][kGroupBytes]
    const uint16_t* scales;  // halves, [N / 16][K / (32 << shift)][16], or [2][16]: scales, minima
    const float* bias;       // [N]; null: none
    int64_t num_outputs;
    int64_t num_groups;
    int shift;  // of a group's number, to that of its scales
    const Codes* format;

    int64_t num_panels() const { return (num_outputs + kPanel - 1) / kPanel; }
    const uint8_t* group_codes(int64_t panel, int64_t g) const {
        return codes + (panel * num_groups + g) * Codes::kGroupBytes;
    }
    const uint16_t* group_scales(int64_t panel, int64_t g) const {
        return scales + (panel * num_scales(num_groups, shift) + (g >> shift)) * kGroupHalves<Codes>;
    }
};

}  // namespace octavo
