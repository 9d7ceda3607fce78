// The formula of linear_quantized.cpp. A tile instruction multiplies the codes of up to 16 rows with those of 16
// outputs over one group, to whole numbers; the rest is done as it is there, in the same order, so that every bit is
// the same.
//
// Codes of weights are made signed bytes before, for many rows at once: with an offset, each sum would have to begin
// with a number of its own.

#include "linear_amx.h"

#if defined(__AMX_INT8__)

#include <algorithm>

#include "buffer.h"
#include "half.h"
#include "quantized_rows.h"
#include "tiles.h"

namespace octavo {
namespace {

constexpr int64_t kTaskElements = int64_t{1} << 20;     // of x that a task reads again for each panel: L2 cache
constexpr int64_t kMinTaskProducts = int64_t{1} << 19;  // fewer are done sooner than another thread has heard of them
constexpr int kRowStep = 4;                             // rows are computed in so many at once, some for nothing
constexpr int64_t kSignedBytes = kPanel * kGroupSize;   // of a group of a panel

// Tiles of rows, of as many each, times a panel.
struct Product {
    const int8_t* x;        // [tile][group][row][32]
    const float* x_scales;  // [tile][group][row], as the next
    const float* x_sums;
    int num_rows;  // of a tile
    int64_t num_tiles;
    const int8_t* codes;     // of the panel, signed
    const uint16_t* scales;  // of the panel
    int64_t num_groups;
    int shift;              // as in QuantizedPanels
    const float* bias;      // of the panel's outputs; null: none
    const float* residual;  // what is added to out, laid out as out is; null: nothing
    int64_t residual_stride;
    float* out;
    int64_t out_stride;
    int num_columns;       // of the panel that are wanted
    const uint8_t* ahead;  // codes of what comes next, to be fetched meanwhile
};

// Sums of products as they leave the tiles: floats 1.5 * 2^23 + n, in whose last bits n was added up as whole numbers
// are. Subtracting 1.5 * 2^23 leaves n, and next to tiles a subtraction is twice as fast as a conversion.
constexpr float kRound = 12582912.0f;
using Sums = float[kMaxTileRows * kPanel];

struct Rounds {
    alignas(64) Sums rows;
};
constexpr Rounds make_rounds() {
    Rounds rounds{};
    for (float& round : rounds.rows) round = kRound;
    return rounds;
}
constexpr Rounds kRounds = make_rounds();

// Adds what a group contributes. ROWS are the product's or more; what the others get is never looked at.
template <class Codes, int ROWS>
[[gnu::always_inline]] inline void add_group(const uint16_t* scales, const float* x_scales, const float* x_sums,
                                             const Sums& sums, Vec (&totals)[ROWS]) {
    const Vec scale = load_halves(scales);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r) {
        const Vec sum = load(sums + r * kPanel) - broadcast(kRound);
        Vec total = fma(sum, scale * broadcast(x_scales[r]), totals[r]);
        keep(total);
        totals[r] = total;
    }
    if constexpr (Codes::kRange.has_minimum()) {
        const Vec minimum = load_minimum<Codes>(scales, scale);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
            Vec total = fma(minimum, broadcast(x_sums[r]), totals[r]);
            keep(total);
            totals[r] = total;
        }
    }
}

// Writes the totals of a tile.
template <int ROWS>
[[gnu::always_inline]] inline void finish_tile(const Product& product, int64_t tile, const Vec (&totals)[ROWS]) {
    const __mmask16 columns = static_cast<__mmask16>((1u << product.num_columns) - 1);
    const Vec bias = product.bias == nullptr ? Vec{} : load(product.bias);
    float* out = product.out + tile * product.num_rows * product.out_stride;
    const auto store_rows = [&](const auto& add_residual) {
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
            if (r > ROWS - kRowStep && r >= product.num_rows) break;
            _mm512_mask_storeu_ps(out + r * product.out_stride, columns, (__m512)add_residual(r, totals[r] + bias));
        }
    };
    if (product.residual == nullptr) return store_rows([](int, Vec total) { return total; });
    const float* residual = product.residual + tile * product.num_rows * product.residual_stride;
    store_rows([&](int r, Vec total) {
        return (Vec)_mm512_maskz_loadu_ps(columns, residual + r * product.residual_stride) + total;
    });
}

template <class Codes, int ROWS>
[[gnu::noinline]] void multiply_tiles(const Product& product) {
    const int64_t rows = product.num_rows, num_groups = product.num_groups, num_tiles = product.num_tiles;
    const int8_t *x = product.x, *codes = product.codes, *codes_end = codes + num_groups * kSignedBytes;
    const float *x_scales = product.x_scales, *x_sums = product.x_sums;
    const int shift = product.shift;
    alignas(64) Sums sums[2];
    Sums *stored = &sums[0], *added = &sums[1];
    int64_t stride = kGroupSize;  // one register for all, too few being left
    asm("" : "+r"(stride));
    // The sums of a group are stored while the next one is multiplied, and added while the one after that is. The last
    // two products are of what lies behind the rows (kSpareRows), and nobody looks at them.
    const auto multiply_next = [&]() __attribute__((always_inline)) {
        std::swap(stored, added);
        load_tile<1, 1>(x, stride);
        load_tile<2, 2>(codes, stride);
        store_tile<0, 2>(*stored, stride);
        load_tile<0, 2>(kRounds.rows, stride);
        add_products<0, 1, 2>();
        x += rows * kGroupSize;
        codes += kSignedBytes;
        if (codes == codes_end) codes = product.codes;
    };
    const uint8_t* ahead = product.ahead;
    const int64_t ahead_bytes = Codes::kGroupBytes / num_tiles;  // for each group of each tile
    multiply_next();
    multiply_next();
    for (int64_t tile = 0; tile < num_tiles; ++tile) {
        Vec totals[ROWS] = {};
        for (int64_t g = 0; g < num_groups; ++g) {
            multiply_next();
            for (int64_t i = 0; i < ahead_bytes; i += 64) __builtin_prefetch(ahead + i);
            ahead += ahead_bytes;
            add_group<Codes>(product.scales + (g >> shift) * kGroupHalves<Codes>, x_scales, x_sums, *added, totals);
            x_scales += rows;
            x_sums += rows;
        }
        finish_tile(product, tile, totals);
    }
}

template <class Codes, int ROWS = kMaxTileRows>
void multiply_rows(const Product& product) {
    if constexpr (ROWS > kRowStep) {
        if (product.num_rows <= ROWS - kRowStep) return multiply_rows<Codes, ROWS - kRowStep>(product);
    }
    multiply_tiles<Codes, ROWS>(product);
}

// The codes of a panel as signed bytes, [K / 4][16][4].
template <class Codes>
const int8_t* unpack(const QuantizedPanels<Codes>& weight, int64_t panel) {
    static thread_local NumberBuffer<int8_t> buffer;
    int8_t* to = buffer.reserve(weight.num_groups * kSignedBytes);
    for (int64_t g = 0; g < weight.num_groups; ++g) {
        for (int i = 0; i < kGroupSize / 4; ++i) {
            const CodeVec codes =
                weight.format->load(weight.group_codes(panel, g), i, 0) + uint8_t(Codes::kRange.smallest);
            std::memcpy(to + g * kSignedBytes + i * sizeof codes, &codes, sizeof codes);
        }
    }
    finish_stores();
    return buffer.data();
}

}  // namespace

template <class Codes>
void multiply_amx(ThreadPool& pool, const QuantizedPanels<Codes>& weight, const RowSource& x,
                  const ConstMatrix* residual, Matrix out) {
    static_assert(kPanelVecs == 1, "a row of a tile is a vector");
    const int64_t num_tiles = (x.num_rows() + kMaxTileRows - 1) / kMaxTileRows;
    const int tile_rows = static_cast<int>((x.num_rows() + num_tiles - 1) / num_tiles);
    const auto rows = quantize_rows<WideDot>(pool, x, tile_rows, 0);
    const int64_t num_inputs = weight.num_groups * kGroupSize;
    const int64_t tiles_per_task = std::max<int64_t>(1, kTaskElements / (tile_rows * num_inputs));
    const int64_t num_tasks = pool.num_equal_tasks(x.num_rows() * weight.num_outputs * num_inputs, kMinTaskProducts);
    const auto run = [&](int64_t first_tile, int64_t last_tile, int64_t first_panel, int64_t last_panel) {
        const TileShapes shapes({{tile_rows, kPanel * 4}, {tile_rows, kGroupSize}, {kGroupSize / 4, kPanel * 4}});
        for (int64_t panel = first_panel; panel < last_panel; ++panel) {
            const int64_t column = panel * kPanel;
            const int8_t* codes = unpack(weight, panel);
            const auto multiply = [&](int64_t tile, int64_t count) {
                const int64_t at = rows.offset(tile), row = tile * tile_rows;
                multiply_rows<Codes>({rows.codes + at * kGroupSize, rows.scales + at, rows.scaled_sums + at,
                                      rows.rows(tile), count, codes, weight.group_scales(panel, 0), weight.num_groups,
                                      weight.shift, weight.bias == nullptr ? nullptr : weight.bias + column,
                                      residual == nullptr ? nullptr : residual->row(row) + column,
                                      residual == nullptr ? 0 : residual->row_stride, out.row(row) + column,
                                      out.row_stride,
                                      static_cast<int>(std::min<int64_t>(kPanel, weight.num_outputs - column)),
                                      weight.group_codes(panel + 1, 0)});
            };
            const int64_t num_full = std::min(last_tile, x.num_rows() / tile_rows);
            if (first_tile < num_full) multiply(first_tile, num_full - first_tile);
            if (num_full < last_tile) multiply(num_full, 1);
        }
    };
    pool.parallel_blocks(num_tiles, weight.num_panels(), tiles_per_task, num_tasks, run);
}

template <class Codes>
using Multiply = void(ThreadPool&, const QuantizedPanels<Codes>&, const RowSource&, const ConstMatrix*, Matrix);

template Multiply<ByteCodes<Minimum::kNone>> multiply_amx;
template Multiply<ByteCodes<Minimum::kMultiple>> multiply_amx;
template Multiply<NibbleCodes<Minimum::kNone>> multiply_amx;
template Multiply<NibbleCodes<Minimum::kAny>> multiply_amx;
template Multiply<NibbleCodes<Minimum::kMultiple>> multiply_amx;
template Multiply<TableCodes> multiply_amx;

}  // namespace octavo

#endif
