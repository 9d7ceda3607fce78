// out[t][n] = sum over k of x[t][k] W[n][k] + b[n]
//
// Tile registers multiply bfloat16 only. A float is rounded to the sum of two of them, x = x0 + x1, x0 the nearest to x
// and x1 the nearest to what is left: a relative error of at most 2^-17. The product of two bfloat16 is a float, so
// x W = x0 W + x1 W. Blocks of 32 k follow one another, in each of which x0 and then x1 are multiplied. Rows of a tile
// know nothing of each other: a row has the same bits whatever else is in the batch and however many threads there are.
// What is not finite makes NaN.

#include "linear_tiles.h"

#if defined(__AMX_BF16__)

#include <algorithm>
#include <type_traits>

#include "buffer.h"
#include "tiles.h"

namespace octavo {
namespace {

constexpr int kParts = 2;         // bfloat16 that a float is rounded to
constexpr int kTileDepth = 32;    // k of a block
constexpr int kFetchBlocks = 12;  // further on, of a panel
constexpr int kFewRows = 4;       // are waiting for memory only, which comes fastest panel after panel
constexpr int kTilePanels = 4;    // that a tile of rows is multiplied with at once
constexpr int64_t kSumStride = kTilePanels * kPanel;
constexpr int64_t kTaskNumbers = int64_t{1} << 19;  // of x in parts, that a task reads again for each panel: L2 cache
constexpr int64_t kMinTaskProducts = int64_t{1} << 17;  // fewer are done sooner than another thread has heard of them

// x in tiles of as many rows each but for the last, [tile][K / 32][2][rows][32].
struct RowTiles {
    BFloat16* data;
    int tile_rows;
    int64_t num_rows;
    int64_t num_k;

    int64_t num_tiles() const { return (num_rows + tile_rows - 1) / tile_rows; }
    int64_t num_blocks() const { return num_k / kTileDepth; }
    int rows(int64_t tile) const { return static_cast<int>(std::min<int64_t>(tile_rows, num_rows - tile * tile_rows)); }
    int64_t tile_size() const { return kParts * tile_rows * num_k; }
    int64_t part_size() const { return int64_t{tile_rows} * kTileDepth; }
    BFloat16* part(int64_t tile, int64_t block, int part) const {
        return data + tile * tile_size() + (block * kParts + part) * part_size();
    }
};

// The nearest bfloat16, of two the larger one, as a float. NaN as processors make it stays NaN.
inline Vec round(Vec x) { return (Vec)(((IntVec)x + 0x8000) & static_cast<int32_t>(0xffff0000)); }

void split_row(const float* x, int64_t num_columns, const RowTiles& tiles, int64_t row) {
    alignas(64) static constexpr uint16_t kUppers[kTileDepth] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                                 23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                                 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    for (int64_t block = 0; block < tiles.num_blocks(); ++block) {
        const int64_t k = block * kTileDepth, count = std::min<int64_t>(kTileDepth, num_columns - k);
        const uint64_t columns = (uint64_t{1} << count) - 1;
        Vec left = _mm512_maskz_loadu_ps(static_cast<__mmask16>(columns), x + k);
        Vec right = _mm512_maskz_loadu_ps(static_cast<__mmask16>(columns >> kWidth), x + k + kWidth);
        for (int part = 0; part < kParts; ++part) {
            const Vec nearest[] = {round(left), round(right)};
            _mm512_storeu_si512(
                tiles.part(row / tiles.tile_rows, block, part) + row % tiles.tile_rows * kTileDepth,
                _mm512_permutex2var_epi16((__m512i)nearest[0], _mm512_load_si512(kUppers), (__m512i)nearest[1]));
            left -= nearest[0];
            right -= nearest[1];
        }
    }
}

RowTiles split_rows(ThreadPool& pool, const RowSource& x, int64_t num_k) {
    static thread_local NumberBuffer<BFloat16> buffer;
    const int64_t num_tiles = (x.num_rows() + kMaxTileRows - 1) / kMaxTileRows;
    RowTiles tiles{nullptr, static_cast<int>((x.num_rows() + num_tiles - 1) / num_tiles), x.num_rows(), num_k};
    tiles.data = buffer.reserve(num_tiles * tiles.tile_size());
    pool.parallel_ranges(x.num_rows(), 8, [&](int64_t begin, int64_t end) {
        static thread_local Buffer scratch;
        const ConstMatrix rows = x.rows(begin, end, scratch.reserve((end - begin) * x.num_columns()));
        for (int64_t i = 0; i < rows.num_rows; ++i) split_row(rows.row(i), rows.num_columns, tiles, begin + i);
    });
    return tiles;
}

// Writes what a tile of rows times some panels is, [rows][64], where it belongs.
struct SumsWriter {
    const PairedPanels& weight;
    const ConstMatrix* residual;
    Matrix out;

    void write(const float* sums, int64_t first_row, int num_rows, int64_t panel, int num_panels) const {
        for (int p = 0; p < num_panels; ++p) {
            const int64_t column = (panel + p) * kPanel, num_columns = weight.num_outputs - column;
            const auto columns = static_cast<__mmask16>((1u << std::min<int64_t>(kPanel, num_columns)) - 1);
            const Vec bias = weight.bias == nullptr ? Vec{} : load(weight.bias + column);
            for (int r = 0; r < num_rows; ++r) {
                Vec sum = load(sums + r * kSumStride + p * kPanel) + bias;
                if (residual != nullptr)
                    sum = (Vec)_mm512_maskz_loadu_ps(columns, residual->row(first_row + r) + column) + sum;
                _mm512_mask_storeu_ps(out.row(first_row + r) + column, columns, (__m512)sum);
            }
        }
    }
};

// Calls function(std::integral_constant<int, i>) for i from 0 to COUNT - 1.
template <int COUNT, class Function>
[[gnu::always_inline]] inline void for_each_panel(const Function& function) {
    if constexpr (COUNT > 1) for_each_panel<COUNT - 1>(function);
    function(std::integral_constant<int, COUNT - 1>{});
}

// Tile registers 0 to 3 for the sums of panels, 4 and 5 for the parts of rows, 6 and 7 for panels.
class Shapes : public TileShapes {
  public:
    explicit Shapes(int num_rows)
        : TileShapes({{num_rows, 64},
                      {num_rows, 64},
                      {num_rows, 64},
                      {num_rows, 64},
                      {num_rows, 64},
                      {num_rows, 64},
                      {kTileDepth / 2, 64},
                      {kTileDepth / 2, 64}}) {}
};

// Fetches a block of a panel into the cache, of which each of num_tiles tiles of rows does some lines.
template <int PANELS>
inline void fetch(const BFloat16* block, int64_t tile, int64_t num_tiles) {
    if (PANELS == 1 && num_tiles == 1) {  // a constant number of them, where little else is done
#pragma GCC unroll 16
        for (int line = 0; line < kTileDepth / 2; ++line) __builtin_prefetch(block + line * 2 * kPanel);
    } else {
        for (int64_t line = tile; line < kTileDepth / 2; line += num_tiles)
            __builtin_prefetch(block + line * 2 * kPanel);
    }
}

// Tiles from first_tile up to last_tile times PANELS panels.
template <int PANELS>
void multiply(const RowTiles& rows, int64_t first_tile, int64_t last_tile, int64_t first_panel,
              const SumsWriter& writer) {
    constexpr int64_t kRowBytes = 64;
    // What is fetched into the cache meanwhile: a bit further on where panels are read once, else the panels that
    // follow.
    const int64_t distance = last_tile - first_tile == 1 ? kFetchBlocks * kTileDepth : PANELS * rows.num_k;
    const BFloat16* panels[PANELS];
    for (int p = 0; p < PANELS; ++p) panels[p] = writer.weight.at(first_panel + p);
    for (int64_t tile = first_tile; tile < last_tile; ++tile) {
        for_each_panel<PANELS>([](auto p) { zero_tile<decltype(p)::value>(); });
        for (int64_t block = 0; block < rows.num_blocks(); ++block) {
            load_tile<4>(rows.part(tile, block, 0), kRowBytes);
            load_tile<5>(rows.part(tile, block, 1), kRowBytes);
            for_each_panel<PANELS>([&](auto constant) {
                constexpr int P = decltype(constant)::value, PANEL = 6 + P % 2;
                const BFloat16* panel = panels[P] + block * kTileDepth * kPanel;
                fetch<PANELS>(panel + distance * kPanel, tile - first_tile, last_tile - first_tile);
                load_tile<PANEL>(panel, kRowBytes);
                add_bfloat16_products<P, 4, PANEL>();
                add_bfloat16_products<P, 5, PANEL>();
            });
        }
        alignas(64) float sums[kMaxTileRows * kSumStride];
        for_each_panel<PANELS>([&](auto p) {
            store_tile<decltype(p)::value>(sums[decltype(p)::value * kPanel], kSumStride * sizeof(float));
        });
        finish_stores();
        writer.write(sums, tile * rows.tile_rows, rows.rows(tile), first_panel, PANELS);
    }
}

}  // namespace

void multiply_in_tiles(ThreadPool& pool, const PairedPanels& weight, const RowSource& x, const ConstMatrix* residual,
                       Matrix out) {
    const RowTiles rows = split_rows(pool, x, weight.num_k);
    const int64_t tiles_per_task = std::max<int64_t>(1, kTaskNumbers / rows.tile_size());
    const int64_t num_tasks = pool.num_equal_tasks(x.num_rows() * weight.num_outputs * weight.num_k, kMinTaskProducts);
    finish_stores();
    const auto run = [&](int64_t first_tile, int64_t last_tile, int64_t first_panel, int64_t last_panel) {
        const Shapes shapes(rows.tile_rows);
        const int64_t most = x.num_rows() <= kFewRows ? 1 : kTilePanels;  // that are read side by side
        for (int64_t panel = first_panel; panel < last_panel; panel += most) {
            with_rows<kTilePanels>(static_cast<int>(std::min(most, last_panel - panel)), [&](auto num) {
                multiply<decltype(num)::value>(rows, first_tile, last_tile, panel, {weight, residual, out});
            });
        }
    };
    pool.parallel_blocks(rows.num_tiles(), weight.num_panels(), tiles_per_task, num_tasks, run);
}

}  // namespace octavo

#endif
