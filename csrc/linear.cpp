#include "linear.h"

#include <algorithm>
#include <stdexcept>

#include "linear_float.h"
#include "linear_quantized.h"
#include "panel.h"

namespace octavo {

std::unique_ptr<LinearWeight> LinearWeight::pack(ThreadPool& pool, const std::string& kind, const StoredMatrix& weight,
                                                 const float* bias) {
    if (kind == "float32") return pack_float32(pool, weight, bias);
    if (kind == "bfloat16") return pack_bfloat16(pool, weight, bias);
    if (kind == "int8") return pack_int8(pool, weight, bias);
    if (kind == "int4") return pack_int4(pool, weight, bias);
    throw std::invalid_argument("cannot pack a weight as " + kind + ", only float32, bfloat16, int8 and int4");
}

LinearWeight::LinearWeight(const StoredMatrix& weight, const float* bias)
    : num_outputs_(weight.num_rows()), num_inputs_(weight.num_columns()) {
    if (bias == nullptr) return;
    bias_ = Buffer(num_panels() * kPanel);
    std::fill(std::copy_n(bias, num_outputs_, bias_.data()), bias_.data() + bias_.size(), 0.0f);
}

int64_t LinearWeight::num_panels() const { return (num_outputs_ + kPanel - 1) / kPanel; }

void linear(ThreadPool& pool, const RowSource& x, const LinearWeight& weight, Matrix out, const ConstMatrix* residual) {
    if (x.num_rows() > 0) weight.multiply(pool, x, residual, out);
}

void embed(ThreadPool& pool, const int32_t* token_ids, const LinearWeight& weight, Matrix out) {
    pool.parallel_ranges(out.num_rows, 4, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) weight.read_row(token_ids[t], out.row(t));
    });
}

}  // namespace octavo
