// What the files that know Python share: the arrays they take, and how they check them.

#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>
#include <string>

#include "attention.h"
#include "kv_cache.h"
#include "matrix.h"

namespace nb = nanobind;

namespace octavo {

template <class Scalar>
using Array1 = nb::ndarray<Scalar, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class Scalar>
using Array2 = nb::ndarray<Scalar, nb::ndim<2>, nb::device::cpu>;
using Rows = Array2<const float>;
using OutRows = Array2<float>;
using Ids = Array1<const int32_t>;

inline void require(bool condition, const std::string& message) {
    if (!condition) throw std::invalid_argument(message);
}

inline void require_equal(int64_t value, int64_t expected, const char* what) {
    require(value == expected,
            std::string(what) + " is " + std::to_string(value) + ", expected " + std::to_string(expected));
}

inline void require_all_in(const Ids& ids, int64_t begin, int64_t end, const char* what) {
    for (size_t i = 0; i < ids.size(); ++i)
        require(ids.data()[i] >= begin && ids.data()[i] < end,
                std::string(what) + "[" + std::to_string(i) + "] is " + std::to_string(ids.data()[i]) + ", expected " +
                    std::to_string(begin) + " to " + std::to_string(end - 1));
}

// A view of an array whose rows are consecutive floats.
template <class Float>
MatrixView<Float> view(const Array2<Float>& array, const char* what) {
    require(array.stride(1) == 1 || array.shape(1) <= 1 || array.shape(0) == 0,  // numpy tells no strides of nothing
            std::string(what) + ": the elements of a row must follow each other; use numpy.ascontiguousarray");
    return {array.data(), static_cast<int64_t>(array.shape(0)), static_cast<int64_t>(array.shape(1)), array.stride(0)};
}

inline Matrix view_out(const OutRows& out, int64_t num_rows, int64_t num_columns) {
    require_equal(out.shape(0), num_rows, "rows of out");
    require_equal(out.shape(1), num_columns, "columns of out");
    return view(out, "out");
}

// A step's requests as attend takes them: each request's rows, their positions and the blocks up to these are checked.
AttentionBatch attention_batch(const Ids& query_start_loc, const Ids& positions,
                               const Array2<const int32_t>& block_table, const KvShape& shape);

// What `params`, an AttentionParams of ops.py, says about attention of `num_heads` heads; `params` keeps its sinks
// alive.
AttentionParams attention_params(nb::handle params, int64_t num_heads);

void bind_linear(nb::module_& m);

void bind_plan(nb::module_& m);
void bind_sampler(nb::module_& m);

}  // namespace octavo
