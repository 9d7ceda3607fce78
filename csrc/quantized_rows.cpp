#include "quantized_rows.h"

#include <limits>

#include "buffer.h"

namespace octavo {
namespace {

constexpr int kGroupVecs = kGroupSize / kWidth;
constexpr int64_t kMinTaskElements = int64_t{1} << 13;  // fewer are done sooner than another thread has heard of them

struct GroupNumbers {
    float scale;
    int32_t code_sum;
};

float largest_size(const Vec (&x)[kGroupVecs]) {
    IntVec largest = {};
    for (const Vec& v : x) {
        const IntVec bits = (IntVec)v & 0x7fffffff;
        largest = bits > largest ? bits : largest;  // as whole numbers the bits of NaN are the largest
    }
    const IntVec infinity = largest * 0 + 0x7f800000;
    return max((Vec)(largest > infinity ? infinity : largest));
}

#if defined(__AVX512F__)

inline void store_codes(int8_t* to, const IntVec (&codes)[kGroupVecs]) {
    for (int i = 0; i < kGroupVecs; ++i) _mm512_mask_cvtepi32_storeu_epi8(to + i * kWidth, 0xffff, (__m512i)codes[i]);
}

#elif defined(__AVX2__)

inline __m256i narrow(IntVec a, IntVec b) { return _mm256_packs_epi32((__m256i)a, (__m256i)b); }

inline void store_codes(int8_t* to, const IntVec (&codes)[kGroupVecs]) {
    const __m256i bytes = _mm256_packs_epi16(narrow(codes[0], codes[1]), narrow(codes[2], codes[3]));
    // Packing goes by halves of 128 bits: fours of each vector lie apart.
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permutevar8x32_epi32(bytes, order));
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

template <class Activation>
GroupNumbers quantize_group(const float* x, Activation* codes) {
    Vec v[kGroupVecs];
    for (int i = 0; i < kGroupVecs; ++i) v[i] = load(x + i * kWidth);
    const float largest = largest_size(v);
    const bool is_finite = largest < std::numeric_limits<float>::infinity();
    if (!is_finite || largest < 0x1p-100f) {
        std::fill_n(codes, kGroupSize, Activation{0});
        return {is_finite ? 0.0f : std::numeric_limits<float>::quiet_NaN(), 0};
    }
    const Vec inverse = broadcast(127.0f / largest);
    const Vec round = broadcast(12582912.0f);  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    Vec sums = {};
    IntVec whole[kGroupVecs];
    for (int i = 0; i < kGroupVecs; ++i) {
        const Vec shifted = v[i] * inverse + round;
        sums += shifted - round;
        whole[i] = (IntVec)shifted - (IntVec)round;
    }
    store_codes(codes, whole);
    return {largest / 127.0f, static_cast<int32_t>(sum(sums))};
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
    Activation* codes = arrays.codes.reserve(size * kGroupSize);
    float *scales = arrays.scales.reserve(size), *scaled_sums = arrays.scaled_sums.reserve(size);
    int32_t* starts = arrays.starts.reserve(size);
    const QuantizedRows<Activation> rows{codes, scales, starts, scaled_sums, x.num_rows(), groups, tile_rows};
    const auto quantize_row = [=](int64_t t, const float* row) {
        const int64_t tile = t / tile_rows, tile_size = rows.rows(tile);
        for (int64_t g = 0; g < groups; ++g) {
            const float* from = row + g * kGroupSize;
            const int64_t count = num_columns - g * kGroupSize;
            float padded[kGroupSize] = {};
            if (count < kGroupSize) std::copy_n(from, count, padded);
            const int64_t i = rows.offset(tile) + g * tile_size + t % tile_rows;
            const GroupNumbers group = quantize_group(count < kGroupSize ? padded : from, codes + i * kGroupSize);
            scales[i] = group.scale;
            scaled_sums[i] = group.scale * static_cast<float>(group.code_sum);
            starts[i] = Dot::encode(-offset * group.code_sum);
        }
    };
    pool.parallel_ranges(x.num_rows(), std::max<int64_t>(1, kMinTaskElements / num_columns),
                         [&](int64_t begin, int64_t end) {
                             static thread_local Buffer scratch;
                             scratch.reserve(num_columns);
                             for (int64_t t = begin; t < end; ++t)
                                 quantize_row(t, x.rows(t, t + 1, scratch.data()).data);
                         });
    return rows;
}

template QuantizedRows<WideDot::Activation> quantize_rows<WideDot>(ThreadPool&, const RowSource&, int, int32_t);
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
template QuantizedRows<NarrowDot::Activation> quantize_rows<NarrowDot>(ThreadPool&, const RowSource&, int, int32_t);
#endif

}  // namespace octavo
