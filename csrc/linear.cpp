// out[t][n] = sum over k of x[t][k] W[n][k] + b[n]
//
// K is cut into blocks of 384. A block's sum starts from zero and adds one product after the other, and the blocks'
// sums are added in order. Rows and outputs are tiled freely around that, K never: a row has the same bits whatever
// else is in the batch and however many threads there are.

#include "linear.h"

#include <algorithm>
#include <cstring>

namespace octavo {
namespace {

constexpr int64_t kBlockK = 384;
constexpr int64_t kPackK = 256;                    // whole blocks of every stored format
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

PackedRows pack(ThreadPool& pool, ConstMatrix x) {
    if (x.num_rows == 1) return {x.data, 1, x.num_columns};  // a single row is packed as it is
    static thread_local Buffer buffer;
    float* data = buffer.reserve(x.num_rows * x.num_columns);
    const PackedRows packed{data, x.num_rows, x.num_columns};
    pool.parallel_ranges(packed.num_tiles(), 2, [&](int64_t begin, int64_t end) {
        for (int64_t tile = begin; tile < end; ++tile)
            pack_rows(x.row(tile * kTileRows), x.row_stride, packed.rows(tile), x.num_columns, 1.0f,
                      data + tile * kTileRows * x.num_columns);
    });
    return packed;
}

// A block of K for one tile of rows and some panels.
struct Block {
    const float* a;      // packed rows
    const float* panel;  // the first panel
    int64_t panel_size;
    int64_t num_k;
    bool is_first;  // sets the output instead of adding to it
    float* out;
    int64_t out_stride;
    int64_t num_columns;  // what is left of N: the last panel may be wider
};

template <int ROWS, int PANELS>
void add_block(const Block& block) {
    const float *panels[PANELS], *ahead[PANELS];
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
struct Task {
    const PackedRows& x;
    const LinearWeight& weight;
    Matrix out;
    int64_t first_tile, last_tile;
    int64_t first_panel, last_panel;
};

// All of K for tiles of ROWS rows and a group of panels.
template <int ROWS>
void multiply(const Task& task, int64_t first_tile, int64_t last_tile, int64_t panel, int64_t last_panel) {
    constexpr int PANELS = tile_panels(ROWS);
    const LinearWeight& weight = task.weight;
    while (panel < last_panel) {
        const bool is_wide = panel + PANELS <= last_panel;
        for (int64_t k = 0; k < weight.num_inputs(); k += kBlockK) {
            for (int64_t tile = first_tile; tile < last_tile; ++tile) {
                const Block block{task.x.tile(tile) + k * ROWS,
                                  weight.panel(panel) + k * kPanel,
                                  weight.num_inputs() * kPanel,
                                  std::min(kBlockK, weight.num_inputs() - k),
                                  k == 0,
                                  task.out.row(tile * kTileRows) + panel * kPanel,
                                  task.out.row_stride,
                                  weight.num_outputs() - panel * kPanel};
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

void add_bias(const Task& task, int64_t first_column, int64_t last_column) {
    const float* bias = task.weight.bias();
    const int64_t last_row = std::min(task.x.num_rows, task.last_tile * kTileRows);
    for (int64_t row = task.first_tile * kTileRows; row < last_row; ++row) {
        float* out = task.out.row(row);
        for (int64_t i = first_column; i < last_column; ++i) out[i] += bias[i];
    }
}

void run(const Task& task) {
    const int64_t num_full = std::min(task.last_tile, task.x.num_rows / kTileRows);
    for (int64_t panel = task.first_panel; panel < task.last_panel; panel += kGroup) {
        const int64_t last_panel = std::min(panel + kGroup, task.last_panel);
        if (task.first_tile < num_full) multiply<kTileRows>(task, task.first_tile, num_full, panel, last_panel);
        if (num_full < task.last_tile) {
            with_rows(task.x.rows(num_full), [&](auto rows) {
                multiply<decltype(rows)::value>(task, num_full, num_full + 1, panel, last_panel);
            });
        }
        if (task.weight.bias() != nullptr)
            add_bias(task, panel * kPanel, std::min(last_panel * kPanel, task.weight.num_outputs()));
    }
}

}  // namespace

LinearWeight::LinearWeight(ThreadPool& pool, const StoredMatrix& weight, const float* bias)
    : num_outputs_(weight.num_rows()), num_inputs_(weight.num_columns()), panels_(num_panels() * num_inputs_ * kPanel) {
    pool.parallel_ranges(num_panels(), 1, [&](int64_t begin, int64_t end) {
        float rows[kPanel][kPackK] = {};
        for (int64_t i = begin; i < end; ++i) {
            float* panel = panels_.data() + i * num_inputs_ * kPanel;
            const int64_t first = i * kPanel, count = std::min<int64_t>(kPanel, num_outputs_ - first);
            for (int64_t k = 0; k < num_inputs_; k += kPackK) {
                const int64_t last = std::min(k + kPackK, num_inputs_);
                for (int64_t j = 0; j < count; ++j) weight.decode(first + j, k, last, rows[j]);
                for (int64_t l = k; l < last; ++l)
                    for (int64_t j = 0; j < kPanel; ++j) panel[l * kPanel + j] = j < count ? rows[j][l - k] : 0.0f;
            }
        }
    });
    if (bias == nullptr) return;
    bias_ = Buffer(num_outputs_);
    std::copy(bias, bias + num_outputs_, bias_.data());
}

void linear(ThreadPool& pool, ConstMatrix x, const LinearWeight& weight, Matrix out) {
    if (x.num_rows == 0) return;
    const PackedRows packed = pack(pool, x);
    const int64_t num_tiles = packed.num_tiles(), num_panels = weight.num_panels();
    const int64_t tiles_per_task = std::clamp(kTaskFloats / (kTileRows * packed.num_k), kMinTaskTiles, kMaxTaskTiles);
    const int64_t num_row_tasks = (num_tiles + tiles_per_task - 1) / tiles_per_task;
    const int64_t products = x.num_rows * weight.num_outputs() * weight.num_inputs();
    const int64_t wanted = std::min(4 * static_cast<int64_t>(pool.num_threads()), products / kMinTaskProducts + 1);
    const int64_t num_panel_tasks = std::min((wanted + num_row_tasks - 1) / num_row_tasks, num_panels);
    pool.parallel_for(num_row_tasks * num_panel_tasks, [&](int64_t i) {
        const int64_t row_task = i / num_panel_tasks, panel_task = i % num_panel_tasks;
        run({packed, weight, out, num_tiles * row_task / num_row_tasks, num_tiles * (row_task + 1) / num_row_tasks,
             num_panels * panel_task / num_panel_tasks, num_panels * (panel_task + 1) / num_panel_tasks});
    });
}

void embed(ThreadPool& pool, const int32_t* token_ids, const LinearWeight& weight, Matrix out) {
    pool.parallel_ranges(out.num_rows, 4, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
            const float* panel = weight.panel(token_ids[t] / kPanel) + token_ids[t] % kPanel;
            for (int64_t k = 0; k < weight.num_inputs(); ++k) out.row(t)[k] = panel[k * kPanel];
        }
    });
}

}  // namespace octavo
