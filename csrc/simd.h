// A vector of floats as wide as the instruction set of this build, and the few functions the kernels need on it.
//
// Lanes are independent and all compute the same thing, so a value has the same bits in whichever lane it falls;
// what does not fill a vector is padded, never computed by other code.

#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace octavo {

#if defined(__AVX512F__)
constexpr int kWidth = 16;  // floats in a Vec
#elif defined(__AVX__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;  // SSE2, NEON
#endif

typedef float Vec __attribute__((vector_size(kWidth * sizeof(float))));
typedef int32_t IntVec __attribute__((vector_size(kWidth * sizeof(int32_t))));
typedef uint32_t BitVec __attribute__((vector_size(kWidth * sizeof(uint32_t))));

inline Vec load(const float* from) {
    Vec v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

// kWidth narrower integers, widened.
template <class Integer>
inline IntVec load_integers(const Integer* from) {
    typedef Integer Integers __attribute__((vector_size(kWidth * sizeof(Integer))));
    Integers v;
    std::memcpy(&v, from, sizeof v);
    return __builtin_convertvector(v, IntVec);
}

// By name, for GCC 12 makes five instructions and more of each. The masks of ones cost nothing: without a mask it warns
// of an operand that is undefined.
#if defined(__AVX512F__)
inline IntVec load_integers(const int8_t* from) {
    return (IntVec)_mm512_maskz_cvtepi8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
inline IntVec load_integers(const uint16_t* from) {
    return (IntVec)_mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
#elif defined(__AVX2__)
inline IntVec load_integers(const int8_t* from) {
    return (IntVec)_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}
inline IntVec load_integers(const uint16_t* from) {
    return (IntVec)_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
#elif defined(__aarch64__)
inline IntVec load_integers(const int8_t* from) {
    int32_t bytes;
    std::memcpy(&bytes, from, sizeof bytes);
    return (IntVec)vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(bytes)))));
}
inline IntVec load_integers(const uint16_t* from) { return (IntVec)vmovl_u16(vld1_u16(from)); }
#endif

inline Vec load(const int8_t* from) { return __builtin_convertvector(load_integers(from), Vec); }

inline void store(float* to, Vec v) { std::memcpy(to, &v, sizeof v); }

inline Vec load_first(const float* from, int count) {
    Vec v = {};
    std::memcpy(&v, from, static_cast<size_t>(count) * sizeof(float));
    return v;
}

inline void store_first(float* to, Vec v, int count) {
    std::memcpy(to, &v, static_cast<size_t>(count) * sizeof(float));
}

// x - 0 is x for every x, -0 and NaN too, and is how GCC spells a broadcast.
inline Vec broadcast(float x) { return x - Vec{}; }

// a * b + c: rounded once where the build has the instruction, twice where it has not.
inline Vec fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
    return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
    return vfmaq_f32(c, a, b);
#else
    return a * b + c;
#endif
}

// Keeps a sum where it is: compilers like to regroup sums and to move them between registers, until some spill.
template <class Vector>
[[gnu::always_inline]] inline void keep(Vector& v) {
#if defined(__AVX512F__)
    asm("" : "+v"(v));
#elif defined(__x86_64__)
    asm("" : "+x"(v));
#elif defined(__aarch64__)
    asm("" : "+w"(v));
#else
    (void)v;
#endif
}

inline Vec max(Vec a, Vec b) { return a > b ? a : b; }

// Combines the lanes of a vector as a tree: its halves, then the halves of that, until one lane is left.
template <int WIDTH = kWidth, class Vector, class Combine>
inline float combine_lanes(Vector v, const Combine& combine) {
    if constexpr (WIDTH == 2) {
        return combine(v[0], v[1]);
    } else {
        typedef float Half __attribute__((vector_size(WIDTH / 2 * sizeof(float))));
        Half halves[2];
        std::memcpy(halves, &v, sizeof halves);
        return combine_lanes<WIDTH / 2>(combine(halves[0], halves[1]), combine);
    }
}

inline float sum(Vec v) {
    return combine_lanes(v, [](auto a, auto b) { return a + b; });
}

inline float max(Vec v) {
    return combine_lanes(v, [](auto a, auto b) { return a > b ? a : b; });
}

// Lanes [0, SIZE), [2 SIZE, 3 SIZE), ... of a and, between them, those of b; with FROM = SIZE all others.
template <int SIZE, int FROM, class Vector, int... LANES>
inline Vector take_blocks(Vector a, Vector b, std::integer_sequence<int, LANES...>) {
    return __builtin_shufflevector(a, b, (LANES & ~SIZE) + FROM + (LANES & SIZE ? kWidth : 0)...);
}

// Lane i of the result combines all lanes of v[i].
template <int SIZE = kWidth / 2, class Vector, class Combine>
inline Vector combine_each(const Vector (&v)[2 * SIZE], const Combine& combine) {
    using Lanes = std::make_integer_sequence<int, kWidth>;
    Vector halves[SIZE];
    for (int i = 0; i < SIZE; ++i)
        halves[i] = combine(take_blocks<SIZE, 0>(v[i], v[i + SIZE], Lanes{}),
                            take_blocks<SIZE, SIZE>(v[i], v[i + SIZE], Lanes{}));
    if constexpr (SIZE == 1) {
        return halves[0];
    } else {
        return combine_each<SIZE / 2>(halves, combine);
    }
}

// e^x within 2 ulp (Cephes' expf): x = n ln 2 + r, |r| <= ln 2 / 2, e^x = 2^n e^r with a polynomial for e^r.
// 0 below 2^-126, infinity above 2^127.5, NaN for NaN.
inline Vec exp(Vec x) {
    const Vec lowest = broadcast(-87.33654f), highest = broadcast(88.7f);
    const Vec round = broadcast(12582912.0f);  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    Vec y = x > highest ? highest : x;
    y = y < lowest ? lowest : y;
    const Vec shifted = fma(y, broadcast(1.44269504f), round);
    const Vec n = shifted - round;
    Vec r = fma(n, broadcast(-0.693359375f), y);
    r = fma(n, broadcast(2.12194440e-4f), r);
    Vec p = broadcast(1.9875691500e-4f);
    p = fma(p, r, broadcast(1.3981999507e-3f));
    p = fma(p, r, broadcast(8.3334519073e-3f));
    p = fma(p, r, broadcast(4.1665795894e-2f));
    p = fma(p, r, broadcast(1.6666665459e-1f));
    p = fma(p, r, broadcast(5.0000001201e-1f));
    p = fma(p, r * r, r + 1.0f);
    const BitVec exponent = (BitVec)shifted + 127;  // its low bits; the shift drops the others
    const Vec scaled = p * (Vec)(exponent << 23);
    return x < lowest ? Vec{} : scaled;
}

// tanh x within 3 ulp (Cephes' tanhf): a polynomial near 0, where 1 - 2 / (e^2x + 1) would lose digits.
inline Vec tanh(Vec x) {
    const Vec size = max(x, -x), square = x * x;
    Vec p = broadcast(-5.70498872745e-3f);
    p = fma(p, square, broadcast(2.06390887954e-2f));
    p = fma(p, square, broadcast(-5.37397155531e-2f));
    p = fma(p, square, broadcast(1.33314422036e-1f));
    p = fma(p, square, broadcast(-3.33332819422e-1f));
    const Vec near = fma(p * square, x, x);
    const Vec far = 1.0f - 2.0f / (exp(size + size) + 1.0f);
    return size < broadcast(0.625f) ? near : x < Vec{} ? -far : far;
}

// x * sigmoid(x)
inline Vec silu(Vec x) { return x / (1.0f + exp(-x)); }

}  // namespace octavo
