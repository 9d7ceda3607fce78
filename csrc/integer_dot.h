// Sums of products of whole numbers: codes of weights, 0 to 255, times those of activations, -127 to 127. All are
// exact.
//
// A CodeVec holds the codes of kWidth outputs for four consecutive k, those of one output next to each other; the same
// four activations of a row go with all of them. A Dot takes kShift off each code on the way.

#pragma once

#include <cstdint>
#include <cstring>

#include "simd.h"

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace octavo {

typedef uint8_t CodeVec __attribute__((vector_size(kWidth * 4)));
typedef int16_t ShortVec __attribute__((vector_size(kWidth * 4)));

inline CodeVec load_codes(const uint8_t* from) {
    CodeVec codes;
    std::memcpy(&codes, from, sizeof codes);
    return codes;
}

// Of each byte of `places`, 0 to 15, what `table` has there; it repeats itself every 16 bytes.
inline CodeVec look_up(CodeVec table, CodeVec places) {
#if defined(__AVX512BW__)
    return (CodeVec)_mm512_shuffle_epi8((__m512i)table, (__m512i)places);
#elif defined(__AVX2__)
    return (CodeVec)_mm256_shuffle_epi8((__m256i)table, (__m256i)places);
#elif defined(__aarch64__)
    return (CodeVec)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)places);
#else
    CodeVec found;
    for (size_t i = 0; i < sizeof found; ++i) found[i] = table[places[i]];
    return found;
#endif
}

inline int32_t load_four_bytes(const void* from) {
    int32_t bytes;
    std::memcpy(&bytes, from, sizeof bytes);
    return bytes;
}

inline IntVec broadcast(int32_t x) { return x - IntVec{}; }

// Of pairs of 16-bit numbers, the sums of both products.
inline IntVec multiply_pairs(ShortVec a, ShortVec b) {
#if defined(__AVX512BW__)
    return (IntVec)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (IntVec)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (IntVec)_mm_madd_epi16((__m128i)a, (__m128i)b);
#elif defined(__aarch64__)
    const auto x = (int16x8_t)a, y = (int16x8_t)b;
    return (IntVec)vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
#else
    const IntVec x = (IntVec)a, y = (IntVec)b;
    return (x << 16 >> 16) * (y << 16 >> 16) + (x >> 16) * (y >> 16);
#endif
}

#if defined(__AVX512VNNI__)

// One instruction.
struct WideDot {
    using Activation = int8_t;
    using Sum = IntVec;
    static constexpr int kShift = 0;

    static int32_t encode(int32_t initial) { return initial; }
    static Sum start(int32_t encoded) { return broadcast(encoded); }
    static void add(Sum& sum, CodeVec codes, const Activation* x) {
        sum = (IntVec)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)codes, (__m512i)broadcast(load_four_bytes(x)));
        keep(sum);
    }
    static IntVec finish(Sum sum) { return sum; }
};

#elif defined(__ARM_FEATURE_DOTPROD)

// One instruction, for signed codes: those up to 255 are shifted by 128, which for a byte is to flip its first bit.
template <uint8_t SHIFT>
struct SignedDot {
    using Activation = int8_t;
    using Sum = IntVec;
    static constexpr int kShift = SHIFT;

    static int32_t encode(int32_t initial) { return initial; }
    static Sum start(int32_t encoded) { return broadcast(encoded); }
    static void add(Sum& sum, CodeVec codes, const Activation* x) {
        sum = (IntVec)vdotq_s32((int32x4_t)sum, (int8x16_t)(codes ^ SHIFT), (int8x16_t)broadcast(load_four_bytes(x)));
        keep(sum);
    }
    static IntVec finish(Sum sum) { return sum; }
};

using WideDot = SignedDot<128>;

#else

// In 16 bits each, even and odd bytes apart: activations are stored in the order 0, 2, 1, 3.
struct WideDot {
    using Activation = int16_t;
    using Sum = IntVec;
    static constexpr int kShift = 0;

    static int32_t encode(int32_t initial) { return initial; }
    static Sum start(int32_t encoded) { return broadcast(encoded); }
    static void add(Sum& sum, CodeVec codes, const Activation* x) {
        typedef uint16_t UnsignedVec __attribute__((vector_size(kWidth * 4)));
        const ShortVec even = (ShortVec)((UnsignedVec)codes & 0xff), odd = (ShortVec)((UnsignedVec)codes >> 8);
        sum += multiply_pairs(even, (ShortVec)broadcast(load_four_bytes(x)));
        keep(sum);
        sum += multiply_pairs(odd, (ShortVec)broadcast(load_four_bytes(x + 2)));
        keep(sum);
    }
    static IntVec finish(Sum sum) { return sum; }
};

#endif

#if defined(__AVX2__) && !defined(__AVX512VNNI__)

// For codes up to 15. Sums of 16 products, and of the initial value, fit into 16 bits: 15 * 127 * 16 = 30480, and an
// initial value of -8 times the sum of 32 activations only moves the codes to -8 ... 7.
struct NarrowDot {
    using Activation = int8_t;
    using Sum = ShortVec;
    static constexpr int kShift = 0;

    static int32_t encode(int32_t initial) { return initial & 0xffff; }
    static Sum start(int32_t encoded) { return (ShortVec)broadcast(encoded); }
    static void add(Sum& sum, CodeVec codes, const Activation* x) {
        sum += (ShortVec)_mm256_maddubs_epi16((__m256i)codes, (__m256i)broadcast(load_four_bytes(x)));
        keep(sum);
    }
    static IntVec finish(Sum sum) { return multiply_pairs(sum, ShortVec{} + 1); }
};

#elif defined(__ARM_FEATURE_DOTPROD)

using NarrowDot = SignedDot<0>;

#else

using NarrowDot = WideDot;

#endif

}  // namespace octavo
