#include "quantized_rows.h"

#include <limits>

#include "buffer.h"

namespace octavo {
namespace {

constexpr int kGroupVecs = kGroupSize / kWidth;
constexpr int64_t kSpareRows = 64;                      // of a group: they may be read after the last, but mean nothing
constexpr int64_t kMinTaskElements = int64_t{1} << 13;  // fewer are done sooner than another thread has heard of them

// The bits of the largest absolute value of a group, of each lane: as whole numbers those of infinity and NaN are
// larger than all others.
inline IntVec largest_bits(const float* x) {
    IntVec largest = {};
    for (int i = 0; i < kGroupVecs; ++i) {
        const IntVec bits = (IntVec)load(x + i * kWidth) & 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

#if defined(__AVX512F__)

inline void store_codes(int8_t* to, const IntVec (&codes)[kGroupVecs]) {
    for (int i = 0; i < kGroupVecs; ++i)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * kWidth),
                         _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)codes[i]));
}

#elif defined(__AVX2__)

inline __m256i narrow(IntVec a, IntVec b) { return _mm256_packs_epi32((__m256i)a, (__m256i)b); }

inline void store_codes(int8_t* to, const IntVec (&codes)[kGroupVecs]) {
    const __m256i bytes = _mm256_packs_epi16(narrow(codes[0], codes[1]), narrow(codes[2], codes[3]));
    // Packing goes by halves of 128 bits: fours of each vector lie apart.
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permutevar8x32_epi32(bytes, order));
}

#elif defined(__aarch64__)

inline int8x16_t narrow(IntVec a, IntVec b) { return (int8x16_t)vuzp1q_s16((int16x8_t)a, (int16x8_t)b); }

inline void store_codes(int8_t* to, const IntVec (&codes)[kGroupVecs]) {
    for (int i = 0; i < kGroupVecs; i += 4)
        vst1q_s8(to + i * kWidth, vuzp1q_s8(narrow(codes[i], codes[i + 1]), narrow(codes[i + 2], codes[i + 3])));
}

#else

inline void store_codes(int8_t* to, const IntVec (&codes)[kGroupVecs]) {
    typedef int8_t Bytes __attribute__((vector_size(kWidth)));
    for (int i = 0; i < kGroupVecs; ++i) {
        const Bytes bytes = __builtin_convertvector(codes[i], Bytes);
        std::memcpy(to + i * kWidth, &bytes, sizeof bytes);
    }
}

#endif

// In the order 0, 2, 1, 3 of each four.
inline void store_codes(int16_t* to, const IntVec (&codes)[kGroupVecs]) {
    typedef int16_t Shorts __attribute__((vector_size(kWidth * 2)));
    typedef uint64_t Fours __attribute__((vector_size(kWidth * 2)));
    for (int i = 0; i < kGroupVecs; ++i) {
        const auto fours = (Fours) __builtin_convertvector(codes[i], Shorts);
        const Fours ordered = (fours & 0xffff00000000ffff) | (fours >> 16 & 0xffff0000) | (fours & 0xffff0000) << 16;
        std::memcpy(to + i * kWidth, &ordered, sizeof ordered);
    }
}

// Writes the codes round(x * inverse) of a group and returns their sum, in parts.
template <class Activation>
inline IntVec quantize_group(const float* x, float inverse, Activation* codes) {
    const Vec round = broadcast(12582912.0f);  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    IntVec total = {}, whole[kGroupVecs];
    for (int i = 0; i < kGroupVecs; ++i) {
        whole[i] = (IntVec)(load(x + i * kWidth) * inverse + round) - (IntVec)round;
        total += whole[i];
    }
    store_codes(codes, whole);
    return total;
}

// The codes of up to kWidth groups that follow each other, those of the next `stride` further on, and of each its scale
// and the sum of its codes.
template <class Activation>
void quantize_groups(const float* x, int64_t count, Activation* codes, int64_t stride, float* scales, float* sums) {
    IntVec parts[kWidth] = {};
    for (int64_t g = 0; g < count; ++g) parts[g] = largest_bits(x + g * kGroupSize);
    const IntVec bits = combine_each(parts, [](IntVec a, IntVec b) { return a > b ? a : b; });
    const Vec largest = (Vec)bits;
    const IntVec is_finite = bits < 0x7f800000, is_small = largest < 0x1p-100f;
    alignas(64) float inverses[kWidth];
    store(inverses, is_small ? Vec{} : is_finite ? 127.0f / largest : Vec{});
    store(scales, is_small ? Vec{} : is_finite ? largest / 127.0f : broadcast(std::numeric_limits<float>::quiet_NaN()));
    for (int64_t g = 0; g < count; ++g) {
        parts[g] = IntVec{};
        if (inverses[g] > 0) {
            parts[g] = quantize_group(x + g * kGroupSize, inverses[g], codes + g * stride);
        } else {
            std::fill_n(codes + g * stride, kGroupSize, Activation{0});
        }
    }
    store(sums, __builtin_convertvector(combine_each(parts, [](IntVec a, IntVec b) { return a + b; }), Vec));
}

// Copies a row to `to`, followed by zeros up to the end of its last group.
const float* pad(const float* row, int64_t num_columns, float* to) {
    std::fill(std::copy_n(row, num_columns, to), to + num_groups(num_columns) * kGroupSize, 0.0f);
    return to;
}

template <class Activation>
struct Arrays {
    NumberBuffer<Activation> codes;
    Buffer scales, scaled_sums;
    NumberBuffer<int32_t> starts;
};

}  // namespace

template <class Dot>
QuantizedRows<typename Dot::Activation> quantize_rows(ThreadPool& pool, const RowSource& x, int tile_rows,
                                                      int32_t offset) {
    using Activation = typename Dot::Activation;
    static thread_local Arrays<Activation> arrays;
    const int64_t num_columns = x.num_columns(), groups = num_groups(num_columns), size = x.num_rows() * groups;
    Activation* codes = arrays.codes.reserve((size + kSpareRows) * kGroupSize);
    float* scales = arrays.scales.reserve(size + kSpareRows);
    float* scaled_sums = arrays.scaled_sums.reserve(size + kSpareRows);
    int32_t* starts = arrays.starts.reserve(size);
    const QuantizedRows<Activation> rows{codes, scales, starts, scaled_sums, x.num_rows(), groups, tile_rows};
    const auto quantize_row = [=](int64_t t, const float* row) {
        const int64_t tile = t / tile_rows, tile_size = rows.rows(tile);
        for (int64_t begin = 0; begin < groups; begin += kWidth) {
            const int64_t count = std::min<int64_t>(kWidth, groups - begin);
            int64_t i = rows.offset(tile) + begin * tile_size + t % tile_rows;
            alignas(64) float scale[kWidth], sum[kWidth];
            quantize_groups(row + begin * kGroupSize, count, codes + i * kGroupSize, tile_size * kGroupSize, scale,
                            sum);
            for (int64_t g = 0; g < count; ++g, i += tile_size) {
                scales[i] = scale[g];
                scaled_sums[i] = scale[g] * sum[g];
                if (offset != 0) starts[i] = Dot::encode(-offset * static_cast<int32_t>(sum[g]));
            }
        }
    };
    pool.parallel_ranges(x.num_rows(), std::max<int64_t>(1, kMinTaskElements / num_columns),
                         [&](int64_t begin, int64_t end) {
                             static thread_local Buffer scratch, padded;
                             scratch.reserve(num_columns);
                             padded.reserve(groups * kGroupSize);
                             for (int64_t t = begin; t < end; ++t) {
                                 const float* row = x.rows(t, t + 1, scratch.data()).data;
                                 if (num_columns % kGroupSize != 0) row = pad(row, num_columns, padded.data());
                                 quantize_row(t, row);
                             }
                         });
    return rows;
}

template QuantizedRows<WideDot::Activation> quantize_rows<WideDot>(ThreadPool&, const RowSource&, int, int32_t);
#if defined(__ARM_FEATURE_DOTPROD) || (defined(__AVX2__) && !defined(__AVX512VNNI__))
template QuantizedRows<NarrowDot::Activation> quantize_rows<NarrowDot>(ThreadPool&, const RowSource&, int, int32_t);
#endif

}  // namespace octavo
