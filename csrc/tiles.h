// Tile registers of AMX: eight matrices of up to 16 rows of 64 bytes.

#pragma once

#if defined(__AMX_INT8__)

#include <immintrin.h>

#include <cstdint>

namespace octavo {

constexpr int kMaxTileRows = 16;

// Shapes the thread's tile registers while it lives:
//   0  sums         num_rows x 16 whole numbers
//   1  activations  num_rows x 32 codes
//   2  weights      8 x 16 x 4 codes: k / 4, outputs, k % 4
class TileShapes {
  public:
    explicit TileShapes(int num_rows) {
        struct {
            uint8_t palette = 1, first_row = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {64, 32, 64};
            uint8_t num_rows[16] = {};
        } shapes;
        shapes.num_rows[0] = shapes.num_rows[1] = static_cast<uint8_t>(num_rows);
        shapes.num_rows[2] = 8;
        // GCC 12 takes the instruction to read eight bytes only, and drops the stores of all others.
        asm volatile("" : : "r"(&shapes) : "memory");
        _tile_loadconfig(&shapes);
    }
    ~TileShapes() { _tile_release(); }
    TileShapes(const TileShapes&) = delete;
    TileShapes& operator=(const TileShapes&) = delete;
};

// What was stored by other instructions is there for tiles to be loaded from: GCC 12 does not know that they read.
inline void finish_stores() { asm volatile("" : : : "memory"); }

}  // namespace octavo

#endif
