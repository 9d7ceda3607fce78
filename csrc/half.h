// IEEE 754 binary16 numbers, as which scales are kept.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "simd.h"

namespace octavo {

inline float float_of_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline float float_of_half(uint16_t half) {
    const uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00) return float_of_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);  // infinity, NaN
    if (magnitude < 0x400)                                                                         // subnormal
        return std::copysign(static_cast<float>(magnitude) * 0x1p-24f, float_of_bits(sign));
    return float_of_bits(sign | ((magnitude << 13) + 0x38000000));  // the exponent's bias: 127 instead of 15
}

// The nearest half, of two the even one; infinity for what is too large. NaN stays NaN.
inline uint16_t half_of_float(float value) {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const float magnitude = std::fabs(value);
    if (std::isnan(value)) return 0x7e00;
    if (magnitude >= 65520.0f) return sign | 0x7c00;
    if (magnitude < 0x1p-14f)  // subnormal: a multiple of 2^-24
        return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f));
    uint32_t bits;
    std::memcpy(&bits, &magnitude, sizeof bits);
    bits += 0xfff + (bits >> 13 & 1);
    return sign | static_cast<uint16_t>((bits - 0x38000000) >> 13);
}

// kWidth finite halves as floats.
inline Vec load_halves(const uint16_t* from) {
#if defined(__AVX512F__)
    // With a mask of ones, which costs nothing: GCC warns of the undefined operand in the one without.
    return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__F16C__)
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#elif defined(__aarch64__)
    return (Vec)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
#else
    typedef uint16_t HalfVec __attribute__((vector_size(kWidth * sizeof(uint16_t))));
    HalfVec halves;
    std::memcpy(&halves, from, sizeof halves);
    const IntVec bits = __builtin_convertvector(halves, IntVec);
    // As a float the number has an exponent that is 112 too small.
    return (Vec)(((bits & 0x7fff) << 13) | ((bits & 0x8000) << 16)) * (0x1p112f - Vec{});
#endif
}

}  // namespace octavo
