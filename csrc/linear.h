// y = x W^T + b with weights packed in panels of 16 outputs.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "buffer.h"
#include "matrix.h"
#include "row_source.h"
#include "stored_matrix.h"
#include "thread_pool.h"

namespace octavo {

// W [N, K], packed as one of the kinds float32, bfloat16, int8 and int4, and the bias [N] if there is one.
class LinearWeight {
  public:
    virtual ~LinearWeight() = default;

    // Packs W as `kind`; `bias` may be null. Throws std::invalid_argument for another kind, AllocationError.
    static std::unique_ptr<LinearWeight> pack(ThreadPool& pool, const std::string& kind, const StoredMatrix& weight,
                                              const float* bias);

    int64_t num_outputs() const { return num_outputs_; }  // N
    int64_t num_inputs() const { return num_inputs_; }    // K
    virtual std::string kind() const = 0;
    virtual int64_t num_bytes() const = 0;

    // As `linear`, for at least one row.
    virtual void multiply(ThreadPool& pool, const RowSource& x, const ConstMatrix* residual, Matrix out) const = 0;
    // Row i of what W was packed into, [K].
    virtual void read_row(int64_t i, float* out) const = 0;

  protected:
    LinearWeight(const StoredMatrix& weight, const float* bias);

    int64_t num_panels() const;
    const float* bias() const { return bias_.data(); }  // padded to whole panels; null: none
    int64_t bias_bytes() const { return bias_.num_bytes(); }

  private:
    int64_t num_outputs_;
    int64_t num_inputs_;
    Buffer bias_;
};

// out[t] = W x[t] + b, and residual[t] + that where there is a residual, which must not be out. [T, K] -> [T, N].
void linear(ThreadPool& pool, const RowSource& x, const LinearWeight& weight, Matrix out,
            const ConstMatrix* residual = nullptr);

// out[t] = W[token_ids[t]], the row of an embedding. Ids must be in [0, N). -> [T, K].
void embed(ThreadPool& pool, const int32_t* token_ids, const LinearWeight& weight, Matrix out);

}  // namespace octavo
