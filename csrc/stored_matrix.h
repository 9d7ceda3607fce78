// A weight as a checkpoint holds it, before it is packed.

#pragma once

#include <cstdint>
#include <vector>

#include "dequantize.h"
#include "matrix.h"

namespace octavo {

// Rows of one format, `row_stride` bytes from one to the next. Somebody else owns the bytes.
struct StoredPart {
    const QuantFormat* format;
    const uint8_t* data;
    int64_t num_rows;
    int64_t row_stride;
};

// W [N, K]: parts stacked along N, as query, key and value are in one linear layer.
class StoredMatrix {
  public:
    // Throws std::invalid_argument if there are no rows, or if a row of K elements is not whole blocks of every format.
    StoredMatrix(std::vector<StoredPart> parts, int64_t num_columns);
    // A view of floats as a stored matrix.
    explicit StoredMatrix(ConstMatrix matrix);

    int64_t num_rows() const { return num_rows_; }
    int64_t num_columns() const { return num_columns_; }

    // Columns [begin, end) of row i as floats. Both are multiples of every format's block size.
    void decode(int64_t i, int64_t begin, int64_t end, float* out) const;

  private:
    std::vector<StoredPart> parts_;
    int64_t num_rows_ = 0;
    int64_t num_columns_;
};

}  // namespace octavo
