// Where the rows of a linear layer come from: from memory, or from the op before it, made while they are packed.

#pragma once

#include <cstdint>

#include "buffer.h"
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

    // The same rows with their columns in another order: column k is what column order[k] was.
    RowSource ordered(const int32_t* order) const {
        RowSource source = *this;
        source.order_ = order;
        return source;
    }

    int64_t num_rows() const { return x_.num_rows; }
    int64_t num_columns() const { return op_.kind == RowOp::Kind::kSiluMul ? x_.num_columns / 2 : x_.num_columns; }

    // Rows [begin, end): a view of them, or made in `scratch`, which has room for so many rows.
    ConstMatrix rows(int64_t begin, int64_t end, float* scratch) const;

  private:
    ConstMatrix made_rows(int64_t begin, int64_t end, float* scratch) const;

    ConstMatrix x_;
    RowOp op_;
    const int32_t* order_ = nullptr;
};

inline ConstMatrix RowSource::rows(int64_t begin, int64_t end, float* scratch) const {
    if (order_ == nullptr) return made_rows(begin, end, scratch);
    static thread_local Buffer buffer;
    const int64_t size = num_columns();
    const ConstMatrix made = made_rows(begin, end, buffer.reserve((end - begin) * size));
    for (int64_t t = 0; t < end - begin; ++t)
        for (int64_t k = 0; k < size; ++k) scratch[t * size + k] = made.row(t)[order_[k]];
    return {scratch, end - begin, size, size};
}

inline ConstMatrix RowSource::made_rows(int64_t begin, int64_t end, float* scratch) const {
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
