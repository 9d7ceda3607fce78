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

// A tile of rows times a panel.
struct Product {
    const int8_t* x;        // [group][row][32]
    const float* x_scales;  // [group][row], as the next
    const float* x_sums;
    int num_rows;
    const int8_t* codes;     // of the panel, signed
    const uint16_t* scales;  // of the panel
    int64_t num_groups;
    int shift;              // as in QuantizedPanels
    const float* bias;      // of the panel's outputs; null: none
    const float* residual;  // what is added to out, laid out as out is; null: nothing
    int64_t residual_stride;
    float* out;
    int64_t out_stride;
    int num_columns;  // of the panel that are wanted
    // Of each group of what will be unpacked next, the lines to fetch meanwhile: every line_step-th.
    const uint8_t* ahead;
    int64_t first_line;
    int64_t line_step;
};

// Sums of products of a group: a matrix of whole numbers, [rows][16].
inline void multiply_group(const Product& product, int64_t g, int32_t* sums) {
    _tile_zero(0);
    _tile_loadd(1, product.x + g * product.num_rows * kGroupSize, kGroupSize);
    _tile_loadd(2, product.codes + g * kSignedBytes, kPanel * 4);
    _tile_dpbssd(0, 1, 2);
    _tile_stored(0, sums, kPanel * sizeof(int32_t));
}

// Adds what a group contributes. ROWS are the product's or more; what the others get is never looked at.
template <class Codes, int ROWS>
[[gnu::always_inline]] inline void add_group(const Product& product, int64_t g, const int32_t* sums,
                                             Vec (&totals)[ROWS]) {
    const uint16_t* halves = product.scales + (g >> product.shift) * kGroupHalves<Codes>;
    const Vec scale = load_halves(halves);
    const float* x_scales = product.x_scales + g * product.num_rows;
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r) {
        const Vec sum = __builtin_convertvector(load_integers(sums + r * kPanel), Vec);
        Vec total = fma(sum, scale * broadcast(x_scales[r]), totals[r]);
        keep(total);
        totals[r] = total;
    }
    if constexpr (Codes::kRange.has_minimum()) {
        const Vec minimum = load_minimum<Codes>(halves, scale);
        const float* x_sums = product.x_sums + g * product.num_rows;
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
            Vec total = fma(minimum, broadcast(x_sums[r]), totals[r]);
            keep(total);
            totals[r] = total;
        }
    }
}

template <class Codes, int ROWS>
[[gnu::noinline]] void multiply_tile(const Product& product) {
    // Of two groups: while one is added, the next is on its way.
    alignas(64) int32_t sums[2][kMaxTileRows * kPanel];
    Vec totals[ROWS] = {};
    multiply_group(product, 0, sums[0]);
    for (int64_t g = 0; g < product.num_groups; ++g) {
        if (g + 1 < product.num_groups) multiply_group(product, g + 1, sums[(g + 1) % 2]);
        for (int64_t i = product.first_line * 64; i < Codes::kGroupBytes; i += product.line_step * 64)
            __builtin_prefetch(product.ahead + g * Codes::kGroupBytes + i);
        add_group<Codes>(product, g, sums[g % 2], totals);
    }
    const __mmask16 columns = static_cast<__mmask16>((1u << product.num_columns) - 1);
    const Vec bias = product.bias == nullptr ? Vec{} : load(product.bias);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r) {
        if (r >= product.num_rows) break;
        Vec total = totals[r] + bias;
        if (product.residual != nullptr)
            total = (Vec)_mm512_maskz_loadu_ps(columns, product.residual + r * product.residual_stride) + total;
        _mm512_mask_storeu_ps(product.out + r * product.out_stride, columns, (__m512)total);
    }
}

template <class Codes, int ROWS = kMaxTileRows>
void multiply_rows(const Product& product) {
    if constexpr (ROWS > kRowStep) {
        if (product.num_rows <= ROWS - kRowStep) return multiply_rows<Codes, ROWS - kRowStep>(product);
    }
    multiply_tile<Codes, ROWS>(product);
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
    const int64_t num_row_tasks = (num_tiles + tiles_per_task - 1) / tiles_per_task;
    const int64_t wanted = pool.num_equal_tasks(x.num_rows() * weight.num_outputs * num_inputs, kMinTaskProducts);
    const int64_t num_panel_tasks = std::min((wanted + num_row_tasks - 1) / num_row_tasks, weight.num_panels());
    pool.parallel_for(num_row_tasks * num_panel_tasks, [&](int64_t i) {
        const int64_t row_task = i / num_panel_tasks, panel_task = i % num_panel_tasks;
        const int64_t last_tile = num_tiles * (row_task + 1) / num_row_tasks;
        const int64_t last_panel = weight.num_panels() * (panel_task + 1) / num_panel_tasks;
        const TileShapes shapes(tile_rows);
        const int64_t first_tile = num_tiles * row_task / num_row_tasks;
        for (int64_t panel = weight.num_panels() * panel_task / num_panel_tasks; panel < last_panel; ++panel) {
            const int64_t column = panel * kPanel;
            const int8_t* codes = unpack(weight, panel);
            for (int64_t tile = first_tile; tile < last_tile; ++tile) {
                const int64_t at = rows.offset(tile), row = tile * tile_rows;
                multiply_rows<Codes>({rows.codes + at * kGroupSize, rows.scales + at, rows.scaled_sums + at,
                                      rows.rows(tile), codes, weight.group_scales(panel, 0), weight.num_groups,
                                      weight.shift, weight.bias == nullptr ? nullptr : weight.bias + column,
                                      residual == nullptr ? nullptr : residual->row(row) + column,
                                      residual == nullptr ? 0 : residual->row_stride, out.row(row) + column,
                                      out.row_stride,
                                      static_cast<int>(std::min<int64_t>(kPanel, weight.num_outputs - column)),
                                      weight.group_codes(panel + 1, 0), tile - first_tile, last_tile - first_tile});
            }
        }
    });
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
