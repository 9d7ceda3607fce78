// y = x W^T + b with weights packed in panels.

#pragma once

#include "buffer.h"
#include "matrix.h"
#include "panel.h"
#include "stored_matrix.h"
#include "thread_pool.h"

namespace octavo {

// W [N, K] in panels of 16 outputs, [N / 16][K][16], the last one padded with zeros, and the bias [N] if there is one.
class LinearWeight {
  public:
    // Packs; `bias` may be null. Throws AllocationError.
    LinearWeight(ThreadPool& pool, const StoredMatrix& weight, const float* bias);

    int64_t num_outputs() const { return num_outputs_; }  // N
    int64_t num_inputs() const { return num_inputs_; }    // K
    int64_t num_panels() const { return (num_outputs_ + kPanel - 1) / kPanel; }
    const float* panel(int64_t i) const { return panels_.data() + i * num_inputs_ * kPanel; }
    const float* bias() const { return bias_.data(); }  // null: none

  private:
    int64_t num_outputs_;
    int64_t num_inputs_;
    Buffer panels_;
    Buffer bias_;
};

// out[t] = W x[t] + b. [T, K] -> [T, N].
void linear(ThreadPool& pool, ConstMatrix x, const LinearWeight& weight, Matrix out);

// out[t] = W[token_ids[t]], the row of an embedding. Ids must be in [0, N). -> [T, K].
void embed(ThreadPool& pool, const int32_t* token_ids, const LinearWeight& weight, Matrix out);

}  // namespace octavo
