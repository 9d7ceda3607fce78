// How tokens are chosen from logits. The rules are those of `Step.sample` in src/octavo/backends/ops.py.

#pragma once

#include <cstdint>

#include "logit_rules.h"
#include "matrix.h"
#include "thread_pool.h"

namespace octavo {

// One entry a row; the names and meanings of `SamplingBatch` in ops.py.
struct SamplingBatch {
    const float* temperature;
    const int32_t* top_k;
    const float* top_p;
    const float* min_p;
    const uint64_t* seed;
    const uint64_t* output_index;
    const int32_t* num_logprobs;
    LogitRules rules;
    int64_t vocab_size;
};

// Where the results go; the names and meanings of `SampledBatch` in ops.py.
struct SampledBatch {
    int32_t* token_ids;
    float* logprob;
    int32_t* rank;
    int32_t* top_ids;     // [S, max_logprobs]
    float* top_logprobs;  // [S, max_logprobs]
    int64_t max_logprobs;
};

// Chooses a token from each row of logits, [S, at least vocab_size]. Entries that ops.py calls undefined are left
// alone.
void sample(ThreadPool& pool, ConstMatrix logits, const SamplingBatch& sampling, const SampledBatch& sampled);

// A double in [0, 1) from Philox-4x32-10 (Salmon et al. 2011), key = seed, counter = (output_index, 0).
double philox_uniform(uint64_t seed, uint64_t output_index);

}  // namespace octavo
