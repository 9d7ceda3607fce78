// Tile registers of AMX: eight matrices of up to 16 rows of 64 bytes.

#pragma once

#if defined(__AMX_INT8__)

#include <immintrin.h>

#include <cstdint>
#include <initializer_list>

namespace octavo {

constexpr int kMaxTileRows = 16;

struct TileShape {
    int num_rows;
    int row_bytes;
};

// Shapes the thread's tile registers, 0 and on, while it lives.
class TileShapes {
  public:
    explicit TileShapes(std::initializer_list<TileShape> shapes) {
        struct {
            uint8_t palette = 1, first_row = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {};
            uint8_t num_rows[16] = {};
        } config;
        int i = 0;
        for (const TileShape& shape : shapes) {
            config.row_bytes[i] = static_cast<uint16_t>(shape.row_bytes);
            config.num_rows[i++] = static_cast<uint8_t>(shape.num_rows);
        }
        // GCC 12 takes the instruction to read eight bytes only, and drops the stores of all others.
        asm volatile("" : : "r"(&config) : "memory");
        _tile_loadconfig(&config);
    }
    ~TileShapes() { _tile_release(); }
    TileShapes(const TileShapes&) = delete;
    TileShapes& operator=(const TileShapes&) = delete;
};

// The instructions on registers whose numbers are known when compiling. Rows begin SCALE * stride bytes after each
// other.
template <int TILE, int SCALE = 1>
inline void load_tile(const void* rows, int64_t stride) {
    asm volatile("tileloadd (%0,%1,%c3), %%tmm%c2" : : "r"(rows), "r"(stride), "i"(TILE), "i"(SCALE));
}

// `rows` is all that the tile covers.
template <int TILE, int SCALE = 1, class Rows>
inline void store_tile(Rows& rows, int64_t stride) {
    asm volatile("tilestored %%tmm%c3, (%1,%2,%c4)" : "=m"(rows) : "r"(&rows), "r"(stride), "i"(TILE), "i"(SCALE));
}

// sums[m][n] += the products over k of signed bytes a[m][k] b[k / 4][n][k % 4].
template <int SUMS, int A, int B>
inline void add_products() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(SUMS), "i"(A), "i"(B));
}

template <int TILE>
inline void zero_tile() {
    asm volatile("tilezero %%tmm%c0" : : "i"(TILE));
}

// sums[m][n] += the products over k of bfloat16 a[m][k] b[k / 2][n][k % 2]: those of even k and those of odd k one
// after the other, each in float32, then both sums. Numbers smaller than 2^-126 are taken for 0.
template <int SUMS, int A, int B>
inline void add_bfloat16_products() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(SUMS), "i"(A), "i"(B));
}

// What was stored by other instructions is there for tiles to be loaded from: GCC 12 does not know that they read.
inline void finish_stores() { asm volatile("" : : : "memory"); }

}  // namespace octavo

#endif
