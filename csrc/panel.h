// The multiplication that linear layers and attention share: rows of A times panels of 16 columns of B.

#pragma once

#include <cstdint>
#include <type_traits>

#include "bfloat16.h"
#include "simd.h"

namespace octavo {

constexpr int kPanel = 16;  // columns of a panel
constexpr int kPanelVecs = kPanel / kWidth;

// How many rows make a tile, and how many sums a tile may hold in registers. Narrow tiles take several panels at
// once: a sum can grow by one product every four cycles only, so there must be about eight of them under way.
#if defined(__AVX512F__)
constexpr int kTileRows = 12, kTileSums = 24;
#elif defined(__ARM_NEON)
constexpr int kTileRows = 6, kTileSums = 24;
#elif defined(__AVX__)
constexpr int kTileRows = 6, kTileSums = 12;
#else
constexpr int kTileRows = 3, kTileSums = 12;
#endif

constexpr int tile_panels(int rows) {
    const int most = kTileSums / (rows * kPanelVecs);
    return most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

// How panels of 16 columns keep their rows: kDepth of them together, each vector of which becomes floats at once.
template <class Element>
struct PanelRows;

template <>
struct PanelRows<float> {
    static constexpr int kDepth = 1;
    static int64_t place(int64_t k, int64_t column) { return k * kPanel + column; }
    // Row `row` of those together at `from`, vector c of the panel.
    static Vec load(const float* from, int, int c) { return octavo::load(from + c * kWidth); }
};

template <>
struct PanelRows<BFloat16> {
    static constexpr int kDepth = 1;
    static Vec load(const BFloat16* from, int, int c) { return octavo::load(from + c * kWidth); }
};

template <>
struct PanelRows<int8_t> {
    static constexpr int kDepth = 1;
    static Vec load(const int8_t* from, int, int c) { return octavo::load(from + c * kWidth); }
};

// bfloat16 in an order of its own: of rows k and k + 1, four columns each and so on, so that one instruction widens a
// vector's worth of either. For tile registers the two of each column, and whole blocks of 32 rows.
struct PairedBFloat16 {
    BFloat16 value;
};

template <>
struct PanelRows<PairedBFloat16> {
#if defined(__AMX_BF16__)
    static constexpr int kDepth = 32;
    static int64_t place(int64_t k, int64_t column) { return (k / 2 * kPanel + column) * 2 + k % 2; }
#else
    static constexpr int kDepth = 2;
    static int64_t place(int64_t k, int64_t column) {
        return k / 2 * 2 * kPanel + column / 4 * 8 + k % 2 * 4 + column % 4;
    }
    static Vec load(const PairedBFloat16* from, int row, int c) {
        from += c * 2 * kWidth;
#if defined(__AVX512BW__)
        const __m512i pairs = _mm512_loadu_si512(from), zero = _mm512_setzero_si512();
        return (Vec)(row == 0 ? _mm512_unpacklo_epi16(zero, pairs) : _mm512_unpackhi_epi16(zero, pairs));
#elif defined(__AVX2__)
        const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)), zero = _mm256_setzero_si256();
        return (Vec)(row == 0 ? _mm256_unpacklo_epi16(zero, pairs) : _mm256_unpackhi_epi16(zero, pairs));
#else
        typedef uint16_t Words __attribute__((vector_size(4 * kWidth)));
        static_assert(kWidth == 4, "the indices below are those of eight words");
        Words pairs, zero = {};
        std::memcpy(&pairs, from, sizeof pairs);
        return (Vec)(row == 0 ? __builtin_shufflevector(zero, pairs, 0, 8, 1, 9, 2, 10, 3, 11)
                              : __builtin_shufflevector(zero, pairs, 4, 12, 5, 13, 6, 14, 7, 15));
#endif
    }
#endif
};

// sums[r][16 p + j] += A[r][k] B[k][16 p + j] for k = 0, 1, ... num_k - 1, one after the other whatever ROWS and PANELS
// are: which is why a row's result does not depend on how many rows it is computed with.
//
// A[r][k] is at a[r * ROW_STRIDE + k * K_STRIDE]; rows k to k + kDepth - 1 of panel p at panels[p] + k * panel_stride,
// and num_k is a multiple of kDepth. What lies likewise at ahead[p] is what the caller will need next: it is fetched
// into the cache meanwhile.
template <int ROWS, int PANELS, int ROW_STRIDE, int K_STRIDE, class Element>
[[gnu::always_inline]] inline void multiply_panels(const float* a, const Element* const (&panels)[PANELS],
                                                   const Element* const (&ahead)[PANELS], int64_t panel_stride,
                                                   int64_t num_k, Vec (&sums)[ROWS][PANELS * kPanelVecs]) {
    constexpr int DEPTH = PanelRows<Element>::kDepth;
    for (int64_t k = 0; k < num_k; k += DEPTH) {
        for (int p = 0; p < PANELS; ++p) __builtin_prefetch(ahead[p] + k * panel_stride);
#pragma GCC unroll 2
        for (int d = 0; d < DEPTH; ++d) {
            Vec b[PANELS * kPanelVecs];
#pragma GCC unroll 16
            for (int c = 0; c < PANELS * kPanelVecs; ++c)
                b[c] = PanelRows<Element>::load(panels[c / kPanelVecs] + k * panel_stride, d, c % kPanelVecs);
#pragma GCC unroll 16
            for (int r = 0; r < ROWS; ++r) {
                const Vec x = broadcast(a[r * ROW_STRIDE + (k + d) * K_STRIDE]);
#pragma GCC unroll 16
                for (int c = 0; c < PANELS * kPanelVecs; ++c) {
                    Vec sum = fma(x, b[c], sums[r][c]);
                    keep(sum);
                    sums[r][c] = sum;
                }
            }
        }
    }
}

// Calls function(std::integral_constant<int, rows>) for a number of rows between 1 and kTileRows.
template <int ROWS = kTileRows, class Function>
inline void with_rows(int rows, const Function& function) {
    if constexpr (ROWS == 1) {
        function(std::integral_constant<int, 1>{});
    } else if (rows == ROWS) {
        function(std::integral_constant<int, ROWS>{});
    } else {
        with_rows<ROWS - 1>(rows, function);
    }
}

// packed[k * rows + r] = scale * x[r][k]: what multiply_panels reads with strides 1 and `rows`.
inline void pack_rows(const float* x, int64_t row_stride, int rows, int64_t num_k, float scale, float* packed) {
    with_rows(rows, [&](auto constant) {
        constexpr int ROWS = decltype(constant)::value;
        for (int64_t k = 0; k < num_k; ++k)
            for (int r = 0; r < ROWS; ++r) packed[k * ROWS + r] = scale * x[r * row_stride + k];
    });
}

}  // namespace octavo
