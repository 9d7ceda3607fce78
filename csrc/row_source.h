// Where the rows of a linear layer come from: from memory, or from the op before it, made while they are packed.

#pragma once

#include <cstdint>

#include "elementwise.h"
#include "matrix.h"
#include "norm.h"

namespace octavo {

// What is made of a row: nothing, or what the function of the same name makes of it, to the same bits.
struct RowOp {
    enum class Kind { kNone, kRmsNorm, kSiluMul };

    Kind kind = Kind::kNone;
    const float* norm_weight = nullptr;  // kRmsNorm: of as many columns as the row
    float eps = 0;
};

class RowSource {
  public:
    RowSource(ConstMatrix x, RowOp op = {}) : x_(x), op_(op) {}  // NOLINT: a matrix is a source of its rows

    int64_t num_rows() const { return x_.num_rows; }
    int64_t num_columns() const { return op_.kind == RowOp::Kind::kSiluMul ? x_.num_columns / 2 : x_.num_columns; }

    // Rows [begin, end): a view of them, or made in `scratch`, which has room for so many rows.
    ConstMatrix rows(int64_t begin, int64_t end, float* scratch) const;

  private:
    ConstMatrix x_;
    RowOp op_;
};

inline ConstMatrix RowSource::rows(int64_t begin, int64_t end, float* scratch) const {
    if (op_.kind == RowOp::Kind::kNone) return {x_.row(begin), end - begin, x_.num_columns, x_.row_stride};
    const int64_t size = num_columns();
    for (int64_t t = begin; t < end; ++t) {
        float* out = scratch + (t - begin) * size;
        if (op_.kind == RowOp::Kind::kRmsNorm) {
            norm_row(x_.row(t), op_.norm_weight, size, op_.eps, out);
        } else {
            silu_mul_row(x_.row(t), size, out);
        }
    }
    return {scratch, end - begin, size, size};
}

}  // namespace octavo
