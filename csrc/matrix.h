// Views of float rows that somebody else owns.

#pragma once

#include <cstdint>

namespace octavo {

// Rows of consecutive floats, `row_stride` floats from one to the next: a slice of columns is a view as well.
template <class Float>
struct MatrixView {
    Float* data;
    int64_t num_rows;
    int64_t num_columns;
    int64_t row_stride;

    Float* row(int64_t i) const { return data + i * row_stride; }
};

using ConstMatrix = MatrixView<const float>;
using Matrix = MatrixView<float>;

}  // namespace octavo
