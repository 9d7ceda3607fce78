// The Python face of linear layers.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "linear.h"

using namespace nb::literals;

namespace octavo {
namespace {

// A list of (format, uint8 [N, bytes of a row], K). The arrays must outlive what is returned.
StoredMatrix stored_matrix(const nb::list& parts) {
    std::vector<StoredPart> stored;
    int64_t num_columns = 0;
    for (nb::handle handle : parts) {
        std::tuple<std::string, Array2<const uint8_t>, int64_t> part;
        if (!nb::try_cast(handle, part, false))
            throw nb::type_error("a part must be (format, uint8 array [N, bytes of a row], K)");
        const auto& [name, rows, row_size] = part;
        const QuantFormat& format = find_quant_format(name);
        if (stored.empty()) num_columns = row_size;
        require_equal(row_size, num_columns, "elements of a row");
        require_equal(rows.shape(1), format.row_bytes(row_size), "bytes of a row");
        require(rows.stride(1) == 1 || rows.shape(0) == 0, "the bytes of a row must follow each other");
        stored.push_back({&format, rows.data(), static_cast<int64_t>(rows.shape(0)), rows.stride(0)});
    }
    return StoredMatrix(std::move(stored), num_columns);
}

using Bias = std::optional<Array1<const float>>;

const float* checked_bias(const Bias& bias, int64_t num_outputs) {
    if (!bias) return nullptr;
    require_equal(bias->size(), num_outputs, "size of bias");
    return bias->data();
}

}  // namespace

void bind_linear(nb::module_& m) {
    nb::class_<LinearWeight>(m, "LinearWeight",
                             "A weight [N, K], and a bias [N] or None, packed for `linear` and `embed`.")
        .def_static(
            "pack",
            [](ThreadPool& pool, const std::string& kind, const nb::list& parts, const Bias& bias) {
                const StoredMatrix matrix = stored_matrix(parts);
                const float* checked = checked_bias(bias, matrix.num_rows());
                nb::gil_scoped_release without_gil;
                return LinearWeight::pack(pool, kind, matrix, checked);
            },
            "pool"_a, "kind"_a, "parts"_a, "bias"_a.noconvert().none(),
            "Parts, (format, uint8 [N, bytes of a row], K) each and stacked along N, as one of the kinds float32, "
            "bfloat16, int8 and int4.")
        .def_prop_ro("kind", &LinearWeight::kind)
        .def_prop_ro("num_outputs", &LinearWeight::num_outputs)
        .def_prop_ro("num_inputs", &LinearWeight::num_inputs)
        .def_prop_ro("num_bytes", &LinearWeight::num_bytes);
}

}  // namespace octavo
