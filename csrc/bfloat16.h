// bfloat16: the upper half of a float.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "simd.h"

namespace octavo {

struct BFloat16 {
    uint16_t bits;
};

// The nearest one, of two the even one; infinity for what is too large. NaN stays NaN.
inline BFloat16 round_to_bfloat16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return {static_cast<uint16_t>(std::isnan(value) ? 0x7fc0 : rounded)};
}

// kWidth of them as floats.
inline Vec load(const BFloat16* from) { return (Vec)(load_integers(&from->bits) << 16); }

}  // namespace octavo
