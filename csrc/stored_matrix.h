// A weight as a checkpoint holds it, before it is packed.

#pragma once

#include <cstdint>
#include <vector>

#include "code_group.h"
#include "dequantize.h"
#include "matrix.h"

namespace octavo {

constexpr int64_t kDecodeSize = 256;  // whole blocks of every format

// Of formats I4, I8 and TABLE4, whose scales lie apart: weight = scale * (code - zero), or scale * table[code].
struct StoredScales {
    const float* scales = nullptr;  // [N, K / group_size]; null: the format has its scales in its blocks
    const float* zeros = nullptr;   // likewise, whole numbers; null: all are 0
    int64_t group_size = 0;         // along K: a multiple of 32, or at least K
    int64_t num_groups = 0;         // of a row
    const int8_t* table = nullptr;  // [16] of TABLE4, -127 to 127

    int number(int code) const { return table == nullptr ? code : table[code & 15]; }
};

// Rows of one format, `row_stride` bytes from one to the next. Somebody else owns the bytes.
struct StoredPart {
    const QuantFormat* format;
    const uint8_t* data;
    int64_t num_rows;
    int64_t row_stride;
    StoredScales scales = {};

    bool has_scales_apart() const { return scales.scales != nullptr; }
    const int8_t* table() const { return has_scales_apart() ? scales.table : format->table; }
    // The block of row i that begins with column k.
    const uint8_t* block(int64_t i, int64_t k) const {
        return data + i * row_stride + k / format->block_size * format->block_bytes;
    }
};

// W [N, K]: parts stacked along N, as query, key and value are in one linear layer.
class StoredMatrix {
  public:
    // A row is whole blocks of every format. Column k is what input order[k] is multiplied with; an empty order: input
    // k. Throws std::invalid_argument if the matrix is empty.
    StoredMatrix(std::vector<StoredPart> parts, int64_t num_columns, std::vector<int32_t> order = {});
    // A view of floats as a stored matrix.
    explicit StoredMatrix(ConstMatrix matrix);

    int64_t num_rows() const { return num_rows_; }
    int64_t num_columns() const { return num_columns_; }
    const std::vector<int32_t>& order() const { return order_; }
    // The largest n so that 32 * 2^n columns, of each 32 * 2^n, share a scale in every part.
    int group_shift() const;

    // The table of 16 that holds the codes of every part, or null.
    const int8_t* table() const;

    // Begins to fetch row i from memory.
    void prefetch(int64_t i) const;

    // Columns [begin, end) of row i as floats. `begin` is a multiple of kDecodeSize.
    void decode(int64_t i, int64_t begin, int64_t end, float* out) const;

    // True if codes in `range` can be exactly what every part holds.
    bool has_codes(const CodeRange& range) const;
    // Columns [begin, end) of row i, at most kDecodeSize, as groups of codes in `range`: exactly where its part has
    // such codes, the nearest ones otherwise.
    void decode_codes(int64_t i, int64_t begin, int64_t end, const CodeRange& range, CodeGroup* out) const;

  private:
    const StoredPart& part_of(int64_t& i) const;

    std::vector<StoredPart> parts_;
    int64_t num_rows_ = 0;
    int64_t num_columns_;
    std::vector<int32_t> order_;
};

}  // namespace octavo
