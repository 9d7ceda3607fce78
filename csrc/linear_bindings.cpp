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

using GroupRows = Array2<const float>;  // [N, G]
using Table = std::optional<Array1<const int8_t>>;
using Scales = std::tuple<GroupRows, std::optional<GroupRows>, int64_t, Table>;
using Part = std::tuple<std::string, Array2<const uint8_t>, int64_t, std::optional<Scales>>;

StoredScales stored_scales(const Scales& scales_apart, int64_t num_rows, int64_t num_columns) {
    const auto& [scales, zeros, group_size, table] = scales_apart;
    require(group_size >= num_columns || (group_size > 0 && group_size % kGroupSize == 0),
            "a group has " + std::to_string(group_size) + " columns, expected a multiple of 32, or all");
    const int64_t num_groups = (num_columns + group_size - 1) / group_size;
    for (const GroupRows* rows : {&scales, zeros ? &*zeros : nullptr}) {
        if (rows == nullptr) continue;
        require_equal(rows->shape(0), num_rows, "rows of scales or zeros");
        require_equal(rows->shape(1), num_groups, "columns of scales or zeros");
        require(rows->stride(1) == 1 && rows->stride(0) == num_groups, "scales and zeros must be contiguous");
    }
    if (table) require_equal(table->size(), 16, "size of table");
    return {scales.data(), zeros ? zeros->data() : nullptr, group_size, num_groups, table ? table->data() : nullptr};
}

// A list of (format, uint8 [N, bytes of a row], K, scales); scales of formats I4, I8 and TABLE4 are (float32 [N, G],
// zero points float32 [N, G] or None, columns of a group, table int8 [16] of TABLE4 or None), of others None. The
// arrays must outlive what is returned.
StoredMatrix stored_matrix(const nb::list& parts, const std::optional<Ids>& order) {
    std::vector<StoredPart> stored;
    int64_t num_columns = 0;
    for (nb::handle handle : parts) {
        Part part;
        if (!nb::try_cast(handle, part, false))
            throw nb::type_error("a part must be (format, uint8 array [N, bytes of a row], K, scales)");
        const auto& [name, rows, row_size, scales] = part;
        const QuantFormat& format = find_quant_format(name);
        if (stored.empty()) num_columns = row_size;
        require_equal(row_size, num_columns, "elements of a row");
        require_equal(rows.shape(1), format.row_bytes(row_size), "bytes of a row");
        require(rows.stride(1) == 1 || rows.shape(0) == 0, "the bytes of a row must follow each other");
        require((name == "I4" || name == "I8" || name == "TABLE4") == scales.has_value(),
                "scales go with I4, I8 and TABLE4, and with these only");
        require((name == "TABLE4") == (scales && std::get<Table>(*scales)),
                "a table goes with TABLE4, and with it only");
        const auto num_rows = static_cast<int64_t>(rows.shape(0));
        stored.push_back({&format, rows.data(), num_rows, rows.stride(0),
                          scales ? stored_scales(*scales, num_rows, num_columns) : StoredScales{}});
    }
    if (!order) return StoredMatrix(std::move(stored), num_columns);
    require_equal(order->size(), num_columns, "size of order");
    require_all_in(*order, 0, num_columns, "order");
    return StoredMatrix(std::move(stored), num_columns, {order->data(), order->data() + num_columns});
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
            [](ThreadPool& pool, const std::string& kind, const nb::list& parts, const Bias& bias,
               const std::optional<Ids>& order) {
                const StoredMatrix matrix = stored_matrix(parts, order);
                const float* checked = checked_bias(bias, matrix.num_rows());
                nb::gil_scoped_release without_gil;
                return LinearWeight::pack(pool, kind, matrix, checked);
            },
            "pool"_a, "kind"_a, "parts"_a, "bias"_a.noconvert().none(), "order"_a.noconvert().none() = nb::none(),
            "Parts, (format, uint8 [N, bytes of a row], K, scales) each and stacked along N, as one of the kinds "
            "float32, "
            "bfloat16, int8 and int4. Column k belongs to input order[k], in int8 and int4.")
        .def_prop_ro("kind", &LinearWeight::kind)
        .def_prop_ro("num_outputs", &LinearWeight::num_outputs)
        .def_prop_ro("num_inputs", &LinearWeight::num_inputs)
        .def_prop_ro("num_bytes", &LinearWeight::num_bytes);
}

}  // namespace octavo
