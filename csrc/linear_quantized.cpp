// out[t][n] = sum over groups g of 32 along K of
//
//   x_scale[t][g] scale[n][g] (sum over k in g of x_code[t][k] code[n][k]) + x_scale[t][g] minimum[n][g] (sum of
//   x_code)
//
// Scales and minima may be those of several groups that follow each other; the sums are still of 32, so that nothing
// depends on how scales are shared. The sums inside a group are whole numbers and exact; what the groups contribute is
// added in their order, each rounded. So a row has the same bits whatever else is in the batch, and however rows and
// outputs are tiled.

#include "linear_quantized.h"

#include <algorithm>
#include <cstring>

#include "code_format.h"
#include "half.h"
#include "linear_amx.h"
#include "panel.h"
#include "quantized_panels.h"
#include "quantized_rows.h"

namespace octavo {
namespace {

// How many rows make a tile, and how many sums of a group a tile may hold in registers; its totals are touched once a
// group only.
#if defined(__AVX512F__)
constexpr int kDotRows = 6, kDotSums = 12;
#elif defined(__AVX__)
constexpr int kDotRows = 4, kDotSums = 8;
#elif defined(__ARM_NEON)
constexpr int kDotRows = 4, kDotSums = 16;
#else
constexpr int kDotRows = 2, kDotSums = 8;
#endif

constexpr int dot_panels(int rows) {
    if (rows == 1) return 1;  // waits for memory, which is fastest read in one go
    const int most = kDotSums / (rows * kPanelVecs);
    return most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

constexpr int kPrefetch = 2048;                         // bytes of a panel, for the few rows that wait for memory
constexpr int64_t kTaskElements = int64_t{1} << 18;     // of x that a task reads again for each panel: L2 cache
constexpr int64_t kMinTaskProducts = int64_t{1} << 17;  // fewer are done sooner than another thread has heard of them

// What has been added to a code by the time it goes into a sum.
template <class Codes>
constexpr int kOffset = -Codes::kRange.smallest - Codes::Dot::kShift;

// A tile of rows times panels that follow each other.
template <class Codes>
struct Tile {
    const Codes* format;
    const typename Codes::Dot::Activation* x;  // [group][row][32]
    const float* x_scales;                     // [group][row], as the next two
    const int32_t* starts;
    const float* scaled_sums;
    const uint8_t* codes;    // of the first panel
    const uint16_t* scales;  // likewise
    int64_t num_groups;
    int shift;  // as in QuantizedPanels
    int64_t num_scales;
    const float* bias;      // of the first panel's outputs; null: none
    const float* residual;  // what is added to out, laid out as out is; null: nothing
    int64_t residual_stride;
    float* out;  // of whole panels
    int64_t out_stride;
};

// The sums of one group, all of whose products are under way at once.
template <class Codes, int ROWS, int PANELS>
[[gnu::always_inline]] inline void sum_group(const Tile<Codes>& tile, int64_t g,
                                             typename Codes::Dot::Sum (&sums)[ROWS][PANELS * kPanelVecs]) {
    constexpr int VECS = PANELS * kPanelVecs;
    const auto* x = tile.x + g * ROWS * kGroupSize;
    const uint8_t* group[PANELS];
    for (int p = 0; p < PANELS; ++p) group[p] = tile.codes + (p * tile.num_groups + g) * Codes::kGroupBytes;
    if constexpr (ROWS <= 2)
        for (int p = 0; p < PANELS; ++p)
            for (int64_t i = 0; i < Codes::kGroupBytes; i += 64) __builtin_prefetch(group[p] + kPrefetch + i);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 16
        for (int c = 0; c < VECS; ++c)
            sums[r][c] =
                kOffset<Codes> == 0 ? typename Codes::Dot::Sum{} : Codes::Dot::start(tile.starts[g * ROWS + r]);
#pragma GCC unroll 16
    for (int i = 0; i < kGroupSize / 4; ++i) {
        CodeVec codes[VECS];
#pragma GCC unroll 16
        for (int c = 0; c < VECS; ++c) codes[c] = tile.format->load(group[c / kPanelVecs], i, c % kPanelVecs);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 16
            for (int c = 0; c < VECS; ++c) Codes::Dot::add(sums[r][c], codes[c], x + r * kGroupSize + 4 * i);
    }
}

template <class Codes, int ROWS, int PANELS>
[[gnu::noinline]] void multiply_tile(const Tile<Codes>& tile) {
    constexpr int VECS = PANELS * kPanelVecs;
    Vec totals[ROWS][VECS] = {};
    for (int64_t g = 0; g < tile.num_groups; ++g) {
        typename Codes::Dot::Sum sums[ROWS][VECS];
        sum_group<Codes, ROWS, PANELS>(tile, g, sums);
#pragma GCC unroll 16
        for (int c = 0; c < VECS; ++c) {
            const int64_t at = c / kPanelVecs * tile.num_scales + (g >> tile.shift);
            const uint16_t* halves = tile.scales + at * kGroupHalves<Codes> + c % kPanelVecs * kWidth;
            const Vec scale = load_halves(halves);
#pragma GCC unroll 16
            for (int r = 0; r < ROWS; ++r) {
                const Vec sum = __builtin_convertvector(Codes::Dot::finish(sums[r][c]), Vec);
                totals[r][c] = fma(sum, scale * broadcast(tile.x_scales[g * ROWS + r]), totals[r][c]);
            }
            if constexpr (Codes::kRange.has_minimum()) {
                const Vec minimum = load_minimum<Codes>(halves, scale);
#pragma GCC unroll 16
                for (int r = 0; r < ROWS; ++r)
                    totals[r][c] = fma(minimum, broadcast(tile.scaled_sums[g * ROWS + r]), totals[r][c]);
            }
        }
    }
#pragma GCC unroll 16
    for (int c = 0; c < VECS; ++c) {
        const Vec bias = tile.bias == nullptr ? Vec{} : load(tile.bias + c * kWidth);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
            Vec total = totals[r][c] + bias;
            if (tile.residual != nullptr) total = load(tile.residual + r * tile.residual_stride + c * kWidth) + total;
            store(tile.out + r * tile.out_stride + c * kWidth, total);
        }
    }
}

// The same for one panel of which only the first columns are wanted.
template <class Codes, int ROWS>
void multiply_part(Tile<Codes> tile, int64_t num_columns) {
    float padded[ROWS][kPanel];
    const Tile<Codes> part = tile;
    tile.residual = nullptr;
    tile.out = padded[0];
    tile.out_stride = kPanel;
    multiply_tile<Codes, ROWS, 1>(tile);
    for (int r = 0; r < ROWS; ++r)
        for (int64_t j = 0; j < num_columns; ++j) {
            const float* residual = part.residual + r * part.residual_stride;
            part.out[r * part.out_stride + j] = part.residual == nullptr ? padded[r][j] : residual[j] + padded[r][j];
        }
}

template <class Codes>
class QuantizedWeight final : public LinearWeight {
  public:
    QuantizedWeight(ThreadPool& pool, const StoredMatrix& weight, const float* bias, const Codes& format = {});

    std::string kind() const override { return Codes::kGroupBytes == kPanel * kGroupSize ? "int8" : "int4"; }
    int64_t num_bytes() const override {
        return codes_.num_bytes() + scales_.num_bytes() + bias_bytes() + order_.size() * sizeof(int32_t);
    }
    void multiply(ThreadPool& pool, const RowSource& x, const ConstMatrix* residual, Matrix out) const override;
    void read_row(int64_t i, float* out) const override;

  private:
    using Rows = QuantizedRows<typename Codes::Dot::Activation>;

    void pack_panel(const StoredMatrix& weight, int64_t panel);
    void pack_group(const CodeGroup* groups, int64_t count, int64_t panel, int64_t g);
    void multiply_panels(const Rows& x, const ConstMatrix* residual, Matrix out, int64_t tile, int64_t panel,
                         int64_t last_panel) const;

    int64_t groups() const { return num_groups(num_inputs()); }
    int64_t num_scales() const { return octavo::num_scales(groups(), shift_); }
    QuantizedPanels<Codes> panels() const {
        return {codes_.data(), scales_.data(), bias(), num_outputs(), groups(), shift_, &format_};
    }

    Codes format_;
    std::vector<int32_t> order_;   // which input each column is multiplied with; empty: the one of its number
    int shift_;                    // as in QuantizedPanels
    NumberBuffer<uint8_t> codes_;  // as in QuantizedPanels
    NumberBuffer<uint16_t> scales_;
};

template <class Codes>
QuantizedWeight<Codes>::QuantizedWeight(ThreadPool& pool, const StoredMatrix& weight, const float* bias,
                                        const Codes& format)
    : LinearWeight(weight, bias),
      format_(format),
      order_(weight.order()),
      shift_(weight.has_codes(Codes::kRange) ? weight.group_shift() : 0),  // rounded anew: a scale each
      codes_(NumberBuffer<uint8_t>::lasting(num_panels() * groups() * Codes::kGroupBytes)),
      scales_(NumberBuffer<uint16_t>::lasting(num_panels() * num_scales() * kGroupHalves<Codes>)) {
    pool.parallel_ranges(num_panels(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t panel = begin; panel < end; ++panel) pack_panel(weight, panel);
    });
}

template <class Codes>
void QuantizedWeight<Codes>::pack_panel(const StoredMatrix& weight, int64_t panel) {
    constexpr int64_t kMost = kDecodeSize / kGroupSize;
    CodeGroup groups[kPanel][kMost];
    const int64_t count = std::min<int64_t>(kPanel, num_outputs() - panel * kPanel);
    for (int64_t j = 0; j < count; ++j) weight.prefetch(panel * kPanel + j);  // they are read a piece of each in turn
    for (int64_t k = 0; k < num_inputs(); k += kDecodeSize) {
        const int64_t end = std::min(k + kDecodeSize, num_inputs());
        for (int64_t j = 0; j < count; ++j) weight.decode_codes(panel * kPanel + j, k, end, Codes::kRange, groups[j]);
        for (int64_t g = 0; g < num_groups(end - k); ++g) pack_group(&groups[0][g], count, panel, k / kGroupSize + g);
    }
}

// `groups` are those of the panel's `count` outputs, in steps of kDecodeSize / kGroupSize.
template <class Codes>
void QuantizedWeight<Codes>::pack_group(const CodeGroup* groups, int64_t count, int64_t panel, int64_t g) {
    uint8_t* codes = codes_.data() + (panels().group_codes(panel, g) - codes_.data());
    uint16_t* scales = scales_.data() + (panels().group_scales(panel, g) - scales_.data());
    std::fill_n(codes, Codes::kGroupBytes, uint8_t{0});
    std::fill_n(scales, kGroupHalves<Codes>, uint16_t{0});
    for (int j = 0; j < count; ++j) {
        const CodeGroup& group = groups[j * (kDecodeSize / kGroupSize)];
        uint8_t bytes[kGroupSize];
        for (int k = 0; k < kGroupSize; ++k) bytes[k] = static_cast<uint8_t>(group.codes[k] - Codes::kRange.smallest);
        format_.set(codes, j, bytes);
        scales[j] = half_of_float(group.scale);
        if (Codes::kRange.has_minimum()) scales[kPanel + j] = half_of_float(group.minimum);
    }
}

template <class Codes>
void QuantizedWeight<Codes>::read_row(int64_t i, float* out) const {
    const int64_t panel = i / kPanel;
    const int output = static_cast<int>(i % kPanel);
    for (int64_t k = 0; k < num_inputs(); ++k) {
        const int64_t g = k / kGroupSize;
        const uint16_t* halves = panels().group_scales(panel, g) + output;
        const int code = format_.get(panels().group_codes(panel, g), output, static_cast<int>(k % kGroupSize));
        const float scale = float_of_half(halves[0]);
        float value = scale * static_cast<float>(code + Codes::kRange.smallest);
        if (Codes::kRange.has_minimum()) {
            const float minimum = float_of_half(halves[kPanel]);
            value += Codes::kRange.minimum == Minimum::kMultiple ? scale * minimum : minimum;
        }
        out[order_.empty() ? k : order_[k]] = value;
    }
}

// All of K for one tile and these panels.
template <class Codes>
void QuantizedWeight<Codes>::multiply_panels(const Rows& x, const ConstMatrix* residual, Matrix out, int64_t tile,
                                             int64_t panel, int64_t last_panel) const {
    with_rows<kDotRows>(x.rows(tile), [&](auto rows) {
        constexpr int ROWS = decltype(rows)::value, PANELS = dot_panels(ROWS);
        while (panel < last_panel) {
            const int64_t at = x.offset(tile);
            const Tile<Codes> operands{
                &format_,
                x.codes + at * kGroupSize,
                x.scales + at,
                x.starts + at,
                x.scaled_sums + at,
                panels().group_codes(panel, 0),
                panels().group_scales(panel, 0),
                groups(),
                shift_,
                num_scales(),
                bias() == nullptr ? nullptr : bias() + panel * kPanel,
                residual == nullptr ? nullptr : residual->row(tile * x.tile_rows) + panel * kPanel,
                residual == nullptr ? 0 : residual->row_stride,
                out.row(tile * x.tile_rows) + panel * kPanel,
                out.row_stride};
            const int64_t num_whole = std::min(last_panel, num_outputs() / kPanel) - panel;
            if (num_whole >= PANELS) {
                multiply_tile<Codes, ROWS, PANELS>(operands);
                panel += PANELS;
            } else if (num_whole >= 1) {
                multiply_tile<Codes, ROWS, 1>(operands);
                panel += 1;
            } else {
                multiply_part<Codes, ROWS>(operands, num_outputs() - panel * kPanel);
                panel += 1;
            }
        }
    });
}

template <class Codes>
void QuantizedWeight<Codes>::multiply(ThreadPool& pool, const RowSource& rows_of_x, const ConstMatrix* residual,
                                      Matrix out) const {
    const RowSource x = order_.empty() ? rows_of_x : rows_of_x.ordered(order_.data());
#if defined(__AMX_INT8__)
    if (x.num_rows() >= kMinAmxRows) return multiply_amx(pool, panels(), x, residual, out);
#endif
    constexpr int64_t kPanels = dot_panels(kDotRows);
    const Rows rows = quantize_rows<typename Codes::Dot>(pool, x, kDotRows, kOffset<Codes>);
    const int64_t num_tiles = rows.num_tiles();
    const int64_t tiles_per_task = std::max<int64_t>(1, kTaskElements / (kDotRows * num_inputs()));
    const int64_t products = x.num_rows() * num_outputs() * num_inputs();
    const int64_t num_tasks = pool.num_equal_tasks(products, kMinTaskProducts);
    const auto run = [&](int64_t first_tile, int64_t last_tile, int64_t first_panel, int64_t last_panel) {
        // Panels first: those of a step stay in the L1 or L2 cache while the tiles go by.
        const int64_t step = num_tiles == 1 ? num_panels() : kPanels;
        for (int64_t panel = first_panel; panel < last_panel; panel += step)
            for (int64_t tile = first_tile; tile < last_tile; ++tile)
                multiply_panels(rows, residual, out, tile, panel, std::min(panel + step, last_panel));
    };
    pool.parallel_blocks(num_tiles, num_panels(), tiles_per_task, num_tasks, run);
}

}  // namespace

std::unique_ptr<LinearWeight> pack_int8(ThreadPool& pool, const StoredMatrix& weight, const float* bias) {
    using Plain = ByteCodes<Minimum::kNone>;
    using WithZeros = ByteCodes<Minimum::kMultiple>;
    if (!weight.has_codes(Plain::kRange) && weight.has_codes(WithZeros::kRange))
        return std::make_unique<QuantizedWeight<WithZeros>>(pool, weight, bias);
    return std::make_unique<QuantizedWeight<Plain>>(pool, weight, bias);
}

std::unique_ptr<LinearWeight> pack_int4(ThreadPool& pool, const StoredMatrix& weight, const float* bias) {
    using Plain = NibbleCodes<Minimum::kNone>;
    using WithZeros = NibbleCodes<Minimum::kMultiple>;
    if (const int8_t* table = weight.table())
        return std::make_unique<QuantizedWeight<TableCodes>>(pool, weight, bias, TableCodes(table));
    if (weight.has_codes(Plain::kRange)) return std::make_unique<QuantizedWeight<Plain>>(pool, weight, bias);
    if (weight.has_codes(WithZeros::kRange)) return std::make_unique<QuantizedWeight<WithZeros>>(pool, weight, bias);
    return std::make_unique<QuantizedWeight<NibbleCodes<Minimum::kAny>>>(pool, weight, bias);
}

}  // namespace octavo
