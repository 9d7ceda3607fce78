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

// Two rows of a panel as bfloat16, the upper halves of floats: the lower half of `bits` is of the even row.
struct BFloat16Pair {
    uint32_t bits;
};

// How rows of a panel become floats: kDepth rows, 0 and on, lie together.
template <class Element>
struct PanelRows;

template <>
struct PanelRows<float> {
    static constexpr int kDepth = 1;
    static Vec load(const float* from, int) { return octavo::load(from); }
};

template <>
struct PanelRows<BFloat16Pair> {
    static constexpr int kDepth = 2;
    static Vec load(const BFloat16Pair* from, int row) {
        IntVec pairs;
        std::memcpy(&pairs, from, sizeof pairs);
        return (Vec)(row == 0 ? pairs << 16 : pairs & static_cast<int32_t>(0xffff0000));
    }
};

template <>
struct PanelRows<BFloat16> {
    static constexpr int kDepth = 1;
    static Vec load(const BFloat16* from, int) { return octavo::load(from); }
};

template <>
struct PanelRows<int8_t> {
    static constexpr int kDepth = 1;
    static Vec load(const int8_t* from, int) { return octavo::load(from); }
};

// sums[r][16 p + j] += A[r][k] B[k][16 p + j] for k = 0, 1, ... num_k - 1, one after the other whatever ROWS and PANELS
// are: which is why a row's result does not depend on how many rows it is computed with.
//
// A[r][k] is at a[r * ROW_STRIDE + k * K_STRIDE]; row k of panel p at panels[p] + k * panel_stride, or for a kDepth
// other than 1 rows k to k + kDepth - 1 at panels[p] + k / kDepth * panel_stride; num_k is a multiple of kDepth. What
// lies likewise at ahead[p] is what the caller will need next: it is fetched into the cache meanwhile.
template <int ROWS, int PANELS, int ROW_STRIDE, int K_STRIDE, class Element>
[[gnu::always_inline]] inline void multiply_panels(const float* a, const Element* const (&panels)[PANELS],
                                                   const Element* const (&ahead)[PANELS], int64_t panel_stride,
                                                   int64_t num_k, Vec (&sums)[ROWS][PANELS * kPanelVecs]) {
    constexpr int DEPTH = PanelRows<Element>::kDepth;
    for (int64_t k = 0; k < num_k; k += DEPTH) {
        const int64_t row = k / DEPTH * panel_stride;
        for (int p = 0; p < PANELS; ++p) __builtin_prefetch(ahead[p] + row);
#pragma GCC unroll 2
        for (int d = 0; d < DEPTH; ++d) {
            Vec b[PANELS * kPanelVecs];
#pragma GCC unroll 16
            for (int c = 0; c < PANELS * kPanelVecs; ++c)
                b[c] = PanelRows<Element>::load(panels[c / kPanelVecs] + row + c % kPanelVecs * kWidth, d);
#pragma GCC unroll 16
            for (int r = 0; r < ROWS; ++r) {
                const Vec x = broadcast(a[r * ROW_STRIDE + (k + d) * K_STRIDE]);
#pragma GCC unroll 16
                for (int c = 0; c < PANELS * kPanelVecs; ++c) sums[r][c] = fma(x, b[c], sums[r][c]);
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
