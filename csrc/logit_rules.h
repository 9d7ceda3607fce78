// What requests want done to their logits before a token is chosen. The rules are steps 1 to 4 of `Step.sample` in
// src/octavo/backends/ops.py.

#pragma once

#include <cstdint>
#include <vector>

namespace octavo {

// A list of token ids for each row: those of row i are ids[start[i]] to ids[start[i + 1] - 1].
struct IdLists {
    const int32_t* start;  // [S + 1]
    const int32_t* ids;

    bool has_any(int64_t row) const { return start[row] < start[row + 1]; }
};

// Sets of token ids, one bit an id. Row i may choose from mask index[i]; -1: from all.
struct TokenMasks {
    const int32_t* index;  // [S]
    const uint32_t* words;
    int64_t num_words;  // of a mask

    const uint32_t* of_row(int64_t row) const { return index[row] < 0 ? nullptr : words + index[row] * num_words; }
};

// The names and meanings of `SamplingBatch` in ops.py.
struct LogitRules {
    IdLists allowed;
    TokenMasks masks;
    IdLists banned;
    IdLists biased;
    const float* bias;  // of each biased id
    IdLists seen;
    const int32_t* output_counts;     // of each seen id
    const float* repetition_penalty;  // [S]
    const float* frequency_penalty;   // [S]
    const float* presence_penalty;    // [S]
};

// The first `size` logits of a row as its request wants them: in `changed`, or as they are where it wants nothing.
const float* apply_rules(const LogitRules& rules, int64_t row, const float* logits, int64_t size,
                         std::vector<float>& changed);

}  // namespace octavo
