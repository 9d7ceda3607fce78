// The multiplication that linear layers and attention share: rows of A times panels of 16 columns of B.

#pragma once

#include <cstdint>
#include <type_traits>

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

// sums[r][16 p + j] += A[r][k] B[k][16 p + j] for k = 0, 1, ... num_k - 1, one after the other whatever ROWS and PANELS
// are: which is why a row's result does not depend on how many rows it is computed with.
//
// A[r][k] is at a[r * ROW_STRIDE + k * K_STRIDE]; row k of panel p at panels[p] + k * panel_stride. What lies likewise
// at ahead[p] is what the caller will need next: it is fetched into the cache meanwhile.
template <int ROWS, int PANELS, int ROW_STRIDE, int K_STRIDE>
[[gnu::always_inline]] inline void multiply_panels(const float* a, const float* const (&panels)[PANELS],
                                                   const float* const (&ahead)[PANELS], int64_t panel_stride,
                                                   int64_t num_k, Vec (&sums)[ROWS][PANELS * kPanelVecs]) {
    for (int64_t k = 0; k < num_k; ++k) {
        for (int p = 0; p < PANELS; ++p) __builtin_prefetch(ahead[p] + k * panel_stride);
        Vec b[PANELS * kPanelVecs];
#pragma GCC unroll 16
        for (int c = 0; c < PANELS * kPanelVecs; ++c)
            b[c] = load(panels[c / kPanelVecs] + k * panel_stride + c % kPanelVecs * kWidth);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
            const Vec x = broadcast(a[r * ROW_STRIDE + k * K_STRIDE]);
#pragma GCC unroll 16
            for (int c = 0; c < PANELS * kPanelVecs; ++c) sums[r][c] = fma(x, b[c], sums[r][c]);
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
