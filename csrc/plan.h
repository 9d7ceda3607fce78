// A model's step, recorded once as a list of ops and replayed in one call.

#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "attention.h"
#include "buffer.h"
#include "kv_cache.h"
#include "linear.h"
#include "matrix.h"
#include "rotary.h"
#include "thread_pool.h"

namespace octavo {

// What differs from step to step.
struct PlanBatch {
    int64_t num_tokens;           // T
    int64_t num_sampled;          // S
    const int32_t* input_ids;     // [T]
    const int32_t* slot_mapping;  // [T]
    const int32_t* logits_rows;   // [S]
    AttentionBatch attention;

    int64_t max_rows() const { return std::max(num_tokens, num_sampled); }
};

// An array that ops read and write: some columns of a slot of the arena. The slot is `slot_width` floats wide and
// begins at float `slot` * max_rows(): a small step uses little memory, all of it at the arena's beginning.
struct PlanArray {
    static constexpr int64_t kResult = -1;  // a slot that is not in the arena: what the step returns

    bool is_sampled;  // has S rows, not T
    int64_t slot;
    int64_t slot_width;
    int64_t first_column;
    int64_t num_columns;
};

// What a batch must stay below, for the ops look things up with what it holds.
struct PlanBounds {
    int64_t num_ids = std::numeric_limits<int32_t>::max();        // rows of the embedding
    int64_t num_positions = std::numeric_limits<int32_t>::max();  // rows of the rotary table
    int64_t num_columns = 0;                                      // of the result
    const KvLayer* kv = nullptr;                                  // a layer of the cache; null: no op has one
};

// Each method but `run` appends an op, which calls the function of the same name. Weights, tables and cache layers must
// outlive the plan; arrays must have the shapes that the function asks for, and no op may write where it reads.
class Plan {
  public:
    void embed(const LinearWeight& weight, PlanArray out);
    // What `op` makes of the rows of x goes through the layer; `residual`, if there is one, is added.
    void linear(PlanArray x, RowOp op, const LinearWeight& weight, std::optional<PlanArray> residual, PlanArray out);
    void add(PlanArray x, PlanArray y, PlanArray out);
    void rms_norm(PlanArray x, const float* weight, int64_t group, float eps, PlanArray out);
    void rotary(PlanArray x, RotaryTable table, PlanArray out);
    void write_kv(PlanArray k, PlanArray v, const KvLayer& kv);
    void attend(PlanArray q, const KvLayer& kv, const AttentionParams& params, PlanArray out);
    void silu_mul(PlanArray gate_up, PlanArray out);
    void gather_rows(PlanArray x, PlanArray out);
    // Fills an array with NaN, so that a test sees who reads what nobody has written.
    void poison(PlanArray array);

    const PlanBounds& bounds() const { return bounds_; }

    // Runs the ops in order; `result` is [S, result columns]. The arena grows when a step has more rows than any before
    // it, so after the largest step nothing is allocated.
    void run(ThreadPool& pool, const PlanBatch& batch, Matrix result);

  private:
    // A running step: where its arrays are.
    struct Step {
        ThreadPool& pool;
        const PlanBatch& batch;
        float* arena;
        Matrix result;

        Matrix write(const PlanArray& array) const;
        ConstMatrix read(const PlanArray& array) const {
            const Matrix m = write(array);
            return {m.data, m.num_rows, m.num_columns, m.row_stride};
        }
    };

    void append(std::function<void(const Step&)> op) { ops_.push_back(std::move(op)); }
    void declare(const PlanArray& out);

    std::vector<std::function<void(const Step&)>> ops_;
    int64_t arena_width_ = 0;  // floats a row
    PlanBounds bounds_;
    std::mutex step_mutex_;  // one step at a time has the arena
    Buffer arena_;
};

}  // namespace octavo
