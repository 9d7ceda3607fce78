// Paged attention.

#pragma once

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

// out[t] = softmax(scale q[t] K^T) V over positions 0..positions[t] of the row's own sequence, for each query head;
// head h reads KV head h // (heads / KV heads). [T, heads * D] -> [T, heads * D]. What lies beyond a row's position is
// never read into its result, be it NaN.
void attend(ThreadPool& pool, ConstMatrix q, const KvLayer& kv, const AttentionBatch& batch, float scale, Matrix out);

}  // namespace octavo
