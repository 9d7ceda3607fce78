// Paged attention.

#pragma once

#include <cstdint>
#include <limits>

#include "kv_cache.h"
#include "matrix.h"
#include "thread_pool.h"

namespace octavo {

// The step's requests: decodes and chunks of prompts alike.
struct AttentionBatch {
    int64_t num_reqs;                // R
    const int32_t* query_start_loc;  // [R + 1] first row of each request in q
    const int32_t* positions;        // [T] place of each row in its sequence
    const int32_t* block_table;      // [R, ...] blocks of each sequence, in order
    int64_t block_table_stride;
};

struct AttentionParams {
    static constexpr int64_t kNoWindow = std::numeric_limits<int64_t>::max();

    float scale;
    int64_t window = kNoWindow;    // positions that a token sees, its own the last of them
    float soft_cap = 0;            // 0: none
    const float* sinks = nullptr;  // [heads], or null
};

// out[t] = softmax(scores) V over positions 0..positions[t] of the row's own sequence, or the last `window` of them,
// for each query head; head h reads KV head h // (heads / KV heads). [T, heads * D] -> [T, heads * D].
//
// scores = scale q[t] K^T, then with a soft cap soft_cap tanh(scores / soft_cap); a sink adds exp(sinks[h]) to what the
// softmax divides by. What lies beyond a row's position or before its window is never read into its result, be it NaN,
// and no block of the latter is read at all.
void attend(ThreadPool& pool, ConstMatrix q, const KvLayer& kv, const AttentionBatch& batch,
            const AttentionParams& params, Matrix out);

}  // namespace octavo
