// How the attention of a step is cut into tasks that share no result.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention.h"
#include "kv_cache.h"
#include "matrix.h"

namespace octavo {

constexpr int64_t kSplit = 512;    // keys that are reduced on their own
constexpr int64_t kTaskRows = 48;  // at most, that share what they read of K and V

struct AttentionProblem {
    ConstMatrix q;
    const KvLayer& kv;
    const AttentionBatch& batch;
    const AttentionParams& params;
    Matrix out;

    int64_t head_dim() const { return kv.shape.head_dim; }
    int64_t group() const { return q.num_columns / (kv.shape.num_kv_heads * head_dim()); }  // query heads a KV head
    // The first position that the token at `position` sees.
    int64_t first_key(int64_t position) const { return std::max<int64_t>(0, position - (params.window - 1)); }
};

// Consecutive rows of one request and one KV head; a row is a query head of a token, row / group and row % group.
struct AttentionTask {
    int64_t request;
    int64_t kv_head;
    int64_t first_row;
    int64_t num_rows;
    int64_t first_key;  // seen by the first row
    int64_t num_keys;   // up to the last that the last row sees

    int64_t first_split() const { return first_key / kSplit; }
    int64_t end_split() const { return (num_keys + kSplit - 1) / kSplit; }
    int64_t work() const { return (num_keys - first_key) * num_rows; }
};

// All rows of a step, the tasks that take longest first.
std::vector<AttentionTask> make_attention_tasks(const AttentionProblem& problem);

}  // namespace octavo
