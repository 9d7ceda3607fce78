// out[t][n] = sum over k of x[t][k] W[n][k] + b[n]
//
// K is cut into blocks of 384. A block's sum starts from zero and adds one product after the other, and the blocks'
// sums are added in order. Rows and outputs are tiled freely around that, K never: a row has the same bits whatever
// else is in the batch and however many threads there are.

#include "linear_float.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "half.h"
#include "linear_tiles.h"
#include "panel.h"

namespace octavo {
namespace {

constexpr int64_t kBlockK = 384;
constexpr int kPrefetch = 64;                      // rows of a panel: 4 KiB
constexpr int64_t kGroup = 4;                      // panels whose block of K stays in the L2 cache
constexpr int64_t kTaskFloats = int64_t{1} << 17;  // of packed x that a task reads again for each group: L2 as well
constexpr int64_t kMinTaskTiles = 8;               // each group, read from memory, serves at least so many tiles
constexpr int64_t kMaxTaskTiles = 32;
constexpr int64_t kMinTaskProducts = int64_t{1} << 15;  // fewer are done sooner than another thread has heard of them

// x in tiles of rows, each packed as [K][rows]; the last tile has the rows that are left.
struct PackedRows {
    const float* data;
    int64_t num_rows;
    int64_t num_k;

    int64_t num_tiles() const { return (num_rows + kTileRows - 1) / kTileRows; }
    int rows(int64_t tile) const { return static_cast<int>(std::min<int64_t>(kTileRows, num_rows - tile * kTileRows)); }
    const float* tile(int64_t tile) const { return data + tile * kTileRows * num_k; }
};

// `num_k` is at least K; what x lacks is zero.
PackedRows pack_tiles(ThreadPool& pool, const RowSource& x, int64_t num_k) {
    static thread_local Buffer buffer;
    float* data = buffer.reserve(x.num_rows() * num_k);
    if (x.num_rows() == 1 && x.num_columns() == num_k) return {x.rows(0, 1, data).data, 1, num_k};  // packed as it is
    const PackedRows packed{data, x.num_rows(), num_k};
    pool.parallel_ranges(packed.num_tiles(), 2, [&](int64_t begin, int64_t end) {
        static thread_local Buffer scratch;
        scratch.reserve(kTileRows * x.num_columns());
        for (int64_t tile = begin; tile < end; ++tile) {
            const int rows = packed.rows(tile);
            const ConstMatrix from = x.rows(tile * kTileRows, tile * kTileRows + rows, scratch.data());
            float* to = data + tile * kTileRows * num_k;
            pack_rows(from.data, from.row_stride, rows, from.num_columns, 1.0f, to);
            std::fill(to + from.num_columns * rows, to + num_k * rows, 0.0f);
        }
    });
    return packed;
}

// W [N, K] in panels of 16 outputs, [N / 16][K][16], the last one padded with zeros.
template <class Element>
struct Panels {
    const Element* data;
    int64_t num_outputs;
    int64_t num_k;  // K, padded to a multiple of kDepth

    const Element* at(int64_t panel, int64_t k) const { return data + (panel * num_k + k) * kPanel; }
};

// A block of K for one tile of rows and some panels.
template <class Element>
struct Block {
    const float* a;        // packed rows
    const Element* panel;  // the first panel
    int64_t panel_size;
    int64_t num_k;
    bool is_first;  // sets the output instead of adding to it
    float* out;
    int64_t out_stride;
    int64_t num_columns;  // what is left of N: the last panel may be wider
};

template <int ROWS, int PANELS, class Element>
[[gnu::noinline]] void add_block(const Block<Element>& block) {
    const Element *panels[PANELS], *ahead[PANELS];
    for (int p = 0; p < PANELS; ++p) {
        panels[p] = block.panel + p * block.panel_size;
        ahead[p] = panels[p] + kPrefetch * kPanel;
    }
    Vec sums[ROWS][PANELS * kPanelVecs] = {};
    multiply_panels<ROWS, PANELS, 1, ROWS>(block.a, panels, ahead, kPanel, block.num_k, sums);
#pragma GCC unroll 16
    for (int c = 0; c < PANELS * kPanelVecs; ++c) {
        const int64_t columns = std::min<int64_t>(kWidth, block.num_columns - c * kWidth);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
            float* out = block.out + r * block.out_stride + c * kWidth;
            if (columns == kWidth) {
                store(out, block.is_first ? sums[r][c] : load(out) + sums[r][c]);
            } else if (columns > 0) {
                store_first(out, block.is_first ? sums[r][c] : load_first(out, columns) + sums[r][c], columns);
            }
        }
    }
}

// What one task computes: these tiles of rows for these panels.
template <class Element>
struct Task {
    const PackedRows& x;
    const Panels<Element>& weight;
    const float* bias;            // null: none
    const ConstMatrix* residual;  // likewise
    Matrix out;
    int64_t first_tile, last_tile;
    int64_t first_panel, last_panel;
};

// All of K for tiles of ROWS rows and a group of panels.
template <int ROWS, class Element>
void multiply(const Task<Element>& task, int64_t first_tile, int64_t last_tile, int64_t panel, int64_t last_panel) {
    constexpr int PANELS = tile_panels(ROWS);
    const Panels<Element>& weight = task.weight;
    while (panel < last_panel) {
        const bool is_wide = panel + PANELS <= last_panel;
        for (int64_t k = 0; k < weight.num_k; k += kBlockK) {
            for (int64_t tile = first_tile; tile < last_tile; ++tile) {
                const Block<Element> block{task.x.tile(tile) + k * ROWS,
                                           weight.at(panel, k),
                                           weight.at(1, 0) - weight.at(0, 0),
                                           std::min(kBlockK, weight.num_k - k),
                                           k == 0,
                                           task.out.row(tile * kTileRows) + panel * kPanel,
                                           task.out.row_stride,
                                           weight.num_outputs - panel * kPanel};
                if (is_wide) {
                    add_block<ROWS, PANELS>(block);
                } else {
                    add_block<ROWS, 1>(block);
                }
            }
        }
        panel += is_wide ? PANELS : 1;
    }
}

template <class Element>
void add_bias_and_residual(const Task<Element>& task, int64_t first_column, int64_t last_column) {
    const int64_t last_row = std::min(task.x.num_rows, task.last_tile * kTileRows);
    for (int64_t row = task.first_tile * kTileRows; row < last_row; ++row) {
        float* out = task.out.row(row);
        if (task.bias != nullptr)
            for (int64_t i = first_column; i < last_column; ++i) out[i] += task.bias[i];
        if (task.residual == nullptr) continue;
        const float* residual = task.residual->row(row);
        for (int64_t i = first_column; i < last_column; ++i) out[i] = residual[i] + out[i];
    }
}

template <class Element>
void run(const Task<Element>& task) {
    const int64_t num_full = std::min(task.last_tile, task.x.num_rows / kTileRows);
    for (int64_t panel = task.first_panel; panel < task.last_panel; panel += kGroup) {
        const int64_t last_panel = std::min(panel + kGroup, task.last_panel);
        if (task.first_tile < num_full) multiply<kTileRows>(task, task.first_tile, num_full, panel, last_panel);
        if (num_full < task.last_tile) {
            with_rows(task.x.rows(num_full), [&](auto rows) {
                multiply<decltype(rows)::value>(task, num_full, num_full + 1, panel, last_panel);
            });
        }
        if (task.bias != nullptr || task.residual != nullptr)
            add_bias_and_residual(task, panel * kPanel, std::min(last_panel * kPanel, task.weight.num_outputs));
    }
}

inline void convert(float from, float& to) { to = from; }

inline void convert(float from, PairedBFloat16& to) { to.value = round_to_bfloat16(from); }

inline float to_float(float element) { return element; }
inline float to_float(PairedBFloat16 element) { return float_of_bits(uint32_t{element.value.bits} << 16); }

template <class Element>
class FloatWeight final : public LinearWeight {
  public:
    FloatWeight(ThreadPool& pool, const StoredMatrix& weight, const float* bias)
        : LinearWeight(weight, bias),
          elements_(NumberBuffer<Element>::lasting(num_panels() * panels().num_k * kPanel)) {
        pool.parallel_ranges(num_panels(), 1, [&](int64_t begin, int64_t end) {
            for (int64_t panel = begin; panel < end; ++panel) pack_panel(weight, panel);
        });
    }

    std::string kind() const override { return kDepth == 1 ? "float32" : "bfloat16"; }
    int64_t num_bytes() const override { return elements_.num_bytes() + bias_bytes(); }

    void read_row(int64_t i, float* out) const override {
        const Element* panel = panels().at(i / kPanel, 0);
        for (int64_t k = 0; k < num_inputs(); ++k) out[k] = to_float(panel[PanelRows<Element>::place(k, i % kPanel)]);
    }

    void multiply(ThreadPool& pool, const RowSource& x, const ConstMatrix* residual, Matrix out) const override;

  private:
    static constexpr int kDepth = PanelRows<Element>::kDepth;

    Panels<Element> panels() const {
        return {elements_.data(), num_outputs(), (num_inputs() + kDepth - 1) / kDepth * kDepth};
    }
    void pack_panel(const StoredMatrix& weight, int64_t panel);

    NumberBuffer<Element> elements_;
};

template <class Element>
void FloatWeight<Element>::pack_panel(const StoredMatrix& weight, int64_t panel) {
    float rows[kPanel][kDecodeSize] = {};
    Element* to = elements_.data() + panel * panels().num_k * kPanel;
    const int64_t count = std::min<int64_t>(kPanel, num_outputs() - panel * kPanel);
    std::fill_n(to + (panels().num_k - kDepth) * kPanel, kDepth * kPanel, Element{});  // K may be less
    for (int64_t begin = 0; begin < num_inputs(); begin += kDecodeSize) {
        const int64_t end = std::min(begin + kDecodeSize, num_inputs());
        for (int64_t j = 0; j < count; ++j) weight.decode(panel * kPanel + j, begin, end, rows[j]);
        for (int64_t k = begin; k < end; ++k)
            for (int64_t j = 0; j < kPanel; ++j) convert(rows[j][k - begin], to[PanelRows<Element>::place(k, j)]);
    }
}

template <class Element>
void FloatWeight<Element>::multiply(ThreadPool& pool, const RowSource& x, const ConstMatrix* residual,
                                    Matrix out) const {
    const Panels<Element> weight = panels();
    const PackedRows packed = pack_tiles(pool, x, weight.num_k);
    const int64_t tiles_per_task = std::clamp(kTaskFloats / (kTileRows * packed.num_k), kMinTaskTiles, kMaxTaskTiles);
    const int64_t products = x.num_rows() * num_outputs() * num_inputs();
    const int64_t num_tasks = pool.num_equal_tasks(products, kMinTaskProducts);
    pool.parallel_blocks(
        packed.num_tiles(), num_panels(), tiles_per_task, num_tasks,
        [&](int64_t first_tile, int64_t last_tile, int64_t first_panel, int64_t last_panel) {
            run(Task<Element>{packed, weight, bias(), residual, out, first_tile, last_tile, first_panel, last_panel});
        });
}

#if defined(__AMX_BF16__)
template <>
void FloatWeight<PairedBFloat16>::multiply(ThreadPool& pool, const RowSource& x, const ConstMatrix* residual,
                                           Matrix out) const {
    multiply_in_tiles(pool, {&elements_.data()->value, num_outputs(), panels().num_k, bias()}, x, residual, out);
}
#endif

}  // namespace

std::unique_ptr<LinearWeight> pack_float32(ThreadPool& pool, const StoredMatrix& weight, const float* bias) {
    return std::make_unique<FloatWeight<float>>(pool, weight, bias);
}

std::unique_ptr<LinearWeight> pack_bfloat16(ThreadPool& pool, const StoredMatrix& weight, const float* bias) {
    return std::make_unique<FloatWeight<PairedBFloat16>>(pool, weight, bias);
}

}  // namespace octavo
