#include "plan.h"

#include <algorithm>
#include <utility>

#include "elementwise.h"
#include "norm.h"

namespace octavo {

Matrix Plan::Step::write(const PlanArray& array) const {
    const int64_t rows = array.is_sampled ? batch.num_sampled : batch.num_tokens;
    if (array.slot == PlanArray::kResult)
        return {result.data + array.first_column, rows, array.num_columns, result.row_stride};
    return {arena + array.slot * batch.max_rows() + array.first_column, rows, array.num_columns, array.slot_width};
}

// Takes note of an array that an op writes: the arena must have room for it.
void Plan::declare(const PlanArray& out) {
    if (out.slot == PlanArray::kResult) {
        bounds_.num_columns = out.slot_width;
    } else {
        arena_width_ = std::max(arena_width_, out.slot + out.slot_width);
    }
}

void Plan::embed(const LinearWeight& weight, PlanArray out) {
    declare(out);
    bounds_.num_ids = std::min(bounds_.num_ids, weight.num_outputs());
    append([=, &weight](const Step& step) { octavo::embed(step.pool, step.batch.input_ids, weight, step.write(out)); });
}

void Plan::linear(PlanArray x, RowOp op, const LinearWeight& weight, std::optional<PlanArray> residual, PlanArray out) {
    declare(out);
    append([=, &weight](const Step& step) {
        const ConstMatrix added = residual ? step.read(*residual) : ConstMatrix{};
        octavo::linear(step.pool, {step.read(x), op}, weight, step.write(out), residual ? &added : nullptr);
    });
}

void Plan::add(PlanArray x, PlanArray y, PlanArray out) {
    declare(out);
    append([=](const Step& step) { octavo::add(step.pool, step.read(x), step.read(y), step.write(out)); });
}

void Plan::rms_norm(PlanArray x, const float* weight, int64_t group, float eps, PlanArray out) {
    declare(out);
    append([=](const Step& step) { octavo::rms_norm(step.pool, step.read(x), weight, group, eps, step.write(out)); });
}

void Plan::rotary(PlanArray x, RotaryTable table, PlanArray out) {
    declare(out);
    bounds_.num_positions = std::min(bounds_.num_positions, table.cos.num_rows);
    append([=](const Step& step) {
        octavo::rotary(step.pool, step.read(x), step.batch.attention.positions, table, step.write(out));
    });
}

void Plan::write_kv(PlanArray k, PlanArray v, const KvLayer& kv) {
    bounds_.kv = &kv;
    append([=, &kv](const Step& step) {
        octavo::write_kv(step.pool, step.read(k), step.read(v), kv, step.batch.slot_mapping);
    });
}

void Plan::attend(PlanArray q, const KvLayer& kv, const AttentionParams& params, PlanArray out) {
    declare(out);
    bounds_.kv = &kv;
    append([=, &kv](const Step& step) {
        octavo::attend(step.pool, step.read(q), kv, step.batch.attention, params, step.write(out));
    });
}

void Plan::silu_mul(PlanArray gate_up, PlanArray out) {
    declare(out);
    append([=](const Step& step) { octavo::silu_mul(step.pool, step.read(gate_up), step.write(out)); });
}

void Plan::gather_rows(PlanArray x, PlanArray out) {
    declare(out);
    append([=](const Step& step) {
        octavo::gather_rows(step.pool, step.read(x), step.batch.logits_rows, step.write(out));
    });
}

void Plan::poison(PlanArray array) {
    append([=](const Step& step) {
        const Matrix rows = step.write(array);
        for (int64_t i = 0; i < rows.num_rows; ++i)
            std::fill_n(rows.row(i), rows.num_columns, std::numeric_limits<float>::quiet_NaN());
    });
}

void Plan::run(ThreadPool& pool, const PlanBatch& batch, Matrix result) {
    std::lock_guard one_step(step_mutex_);
    const Step step{pool, batch, arena_.reserve(batch.max_rows() * arena_width_), result};
    for (const auto& op : ops_) op(step);
}

}  // namespace octavo
