// The Python face of plans: builds one op by op, and checks a step's batch once, for all its ops.

#include <nanobind/stl/optional.h>

#include <optional>
#include <string>

#include "bindings.h"
#include "plan.h"

using namespace nb::literals;

namespace octavo {
namespace {

// The array of int32 that `batch`, a StepBatch of ops.py, holds under `name`; `batch` keeps it alive.
template <class Array>
Array int_array(nb::handle batch, const char* name) {
    Array array;
    if (!nb::try_cast(batch.attr(name), array, false))
        throw nb::type_error((std::string(name) + " must be an array of int32 as ops.py says").c_str());
    return array;
}

Ids ids(nb::handle batch, const char* name) { return int_array<Ids>(batch, name); }

// Checks everything that the plan's ops look up in the batch.
PlanBatch plan_batch(nb::handle batch, const PlanBounds& bounds) {
    const Ids input_ids = ids(batch, "input_ids"), positions = ids(batch, "positions");
    const Ids slot_mapping = ids(batch, "slot_mapping"), logits_rows = ids(batch, "logits_rows");
    const int64_t num_tokens = input_ids.size();
    require_equal(positions.size(), num_tokens, "size of positions");
    require_equal(slot_mapping.size(), num_tokens, "size of slot_mapping");
    require_all_in(input_ids, 0, bounds.num_ids, "input_ids");
    require_all_in(positions, 0, bounds.num_positions, "positions");
    require_all_in(logits_rows, 0, num_tokens, "logits_rows");
    PlanBatch checked{num_tokens,         static_cast<int64_t>(logits_rows.size()),
                      input_ids.data(),   slot_mapping.data(),
                      logits_rows.data(), {}};
    if (bounds.kv == nullptr) {
        checked.attention.positions = positions.data();
    } else {
        const KvShape& shape = bounds.kv->shape;
        require_all_in(slot_mapping, -1, shape.num_blocks * shape.block_size, "slot_mapping");
        checked.attention = attention_batch(ids(batch, "query_start_loc"), positions,
                                            int_array<Array2<const int32_t>>(batch, "block_table"), shape);
    }
    return checked;
}

void bind_ops(nb::class_<Plan>& plan) {
    // keep_alive: what an op points to lives as long as the plan.
    plan.def("embed", &Plan::embed, "weight"_a, "out"_a, nb::keep_alive<1, 2>())
        .def(
            "linear",
            [](Plan& plan, PlanArray x, const LinearWeight& weight, std::optional<PlanArray> residual, PlanArray out) {
                plan.linear(x, {}, weight, residual, out);
            },
            "x"_a, "weight"_a, "residual"_a.none(), "out"_a, nb::keep_alive<1, 3>())
        .def(
            "linear_of_rms_norm",
            [](Plan& plan, PlanArray x, Array1<const float> norm_weight, float eps, const LinearWeight& weight,
               std::optional<PlanArray> residual, PlanArray out) {
                require_equal(norm_weight.size(), x.num_columns, "size of norm_weight");
                plan.linear(x, {RowOp::Kind::kRmsNorm, norm_weight.data(), eps}, weight, residual, out);
            },
            "x"_a, "norm_weight"_a.noconvert(), "eps"_a, "weight"_a, "residual"_a.none(), "out"_a,
            nb::keep_alive<1, 3>(), nb::keep_alive<1, 5>())
        .def(
            "linear_of_silu_mul",
            [](Plan& plan, PlanArray gate_up, const LinearWeight& weight, std::optional<PlanArray> residual,
               PlanArray out) { plan.linear(gate_up, {RowOp::Kind::kSiluMul}, weight, residual, out); },
            "gate_up"_a, "weight"_a, "residual"_a.none(), "out"_a, nb::keep_alive<1, 3>())
        .def("add", &Plan::add, "x"_a, "y"_a, "out"_a)
        .def(
            "rms_norm",
            [](Plan& plan, PlanArray x, Array1<const float> weight, float eps, PlanArray out) {
                plan.rms_norm(x, weight.data(), weight.size(), eps, out);
            },
            "x"_a, "weight"_a.noconvert(), "eps"_a, "out"_a, nb::keep_alive<1, 3>())
        .def(
            "rotary",
            [](Plan& plan, PlanArray x, Rows cos, Rows sin, PlanArray out) {
                plan.rotary(x, {view(cos, "cos"), view(sin, "sin")}, out);
            },
            "x"_a, "cos"_a.noconvert(), "sin"_a.noconvert(), "out"_a, nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>())
        .def("write_kv", &Plan::write_kv, "k"_a, "v"_a, "kv"_a, nb::keep_alive<1, 4>())
        .def(
            "attend",
            [](Plan& plan, PlanArray q, const KvLayer& kv, nb::handle params, PlanArray out) {
                plan.attend(q, kv, attention_params(params, q.num_columns / kv.shape.head_dim), out);
            },
            "q"_a, "kv"_a, "params"_a, "out"_a, nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>())
        .def("silu_mul", &Plan::silu_mul, "gate_up"_a, "out"_a)
        .def("gather_rows", &Plan::gather_rows, "x"_a, "out"_a)
        .def("poison", &Plan::poison, "array"_a);
}

}  // namespace

void bind_plan(nb::module_& m) {
    nb::class_<PlanArray>(m, "PlanArray", "Columns of a slot of a plan's arena; slot -1: of its result.")
        .def(
            "__init__",
            [](PlanArray* self, bool is_sampled, int64_t slot, int64_t slot_width, int64_t first_column,
               int64_t num_columns) {
                require(slot >= PlanArray::kResult && slot_width > 0, "there is no slot " + std::to_string(slot));
                require(first_column >= 0 && num_columns >= 0 && first_column + num_columns <= slot_width,
                        "the columns are not in the slot");
                new (self) PlanArray{is_sampled, slot, slot_width, first_column, num_columns};
            },
            nb::kw_only(), "is_sampled"_a, "slot"_a, "slot_width"_a, "first_column"_a, "num_columns"_a);
    nb::class_<Plan> plan(m, "Plan", "A model's step: ops appended one by one, then run in one call.");
    plan.def(nb::init<>())
        .def(
            "run",
            [](Plan& self, ThreadPool& pool, nb::handle batch, OutRows out) {
                const PlanBatch checked = plan_batch(batch, self.bounds());
                const Matrix result = view_out(out, checked.num_sampled, self.bounds().num_columns);
                nb::gil_scoped_release without_gil;
                self.run(pool, checked, result);
            },
            "pool"_a, "batch"_a, "out"_a.noconvert());
    bind_ops(plan);
}

}  // namespace octavo
