// Activations as whole numbers, to be multiplied with the codes of weights.

#pragma once

#include <algorithm>
#include <cstdint>

#include "code_group.h"
#include "integer_dot.h"
#include "row_source.h"
#include "thread_pool.h"

namespace octavo {

// Rows [T, K], the last group of each padded with zeros. Of each group:
//   scale      = max |x| / 127
//   code       = x / scale, rounded to the nearest whole number, of two the even one; -127 to 127
//   start      = -offset * sum of the codes, encoded, where codes of weights come with `offset` added
//   scaled_sum = scale * sum of the codes
// A group with a number that is not finite has NaN for its scale, and all its codes are 0; so are those of a group in
// which all numbers are below 2^-100.
//
// Rows lie in tiles, the last of which has the rows that are left: [tile][group][row][32], [tile][group][row].
template <class Activation>
struct QuantizedRows {
    const Activation* codes;
    const float* scales;
    const int32_t* starts;
    const float* scaled_sums;
    int64_t num_rows;
    int64_t num_groups;
    int tile_rows;

    int64_t num_tiles() const { return (num_rows + tile_rows - 1) / tile_rows; }
    int rows(int64_t tile) const { return static_cast<int>(std::min<int64_t>(tile_rows, num_rows - tile * tile_rows)); }
    // Where a tile begins in scales, starts and scaled_sums; in codes it is 32 times as far.
    int64_t offset(int64_t tile) const { return tile * tile_rows * num_groups; }
};

// Quantizes x as `Dot` (WideDot, NarrowDot) wants it. What is returned is lost at the calling thread's next call.
template <class Dot>
QuantizedRows<typename Dot::Activation> quantize_rows(ThreadPool& pool, const RowSource& x, int tile_rows,
                                                      int32_t offset);

}  // namespace octavo
