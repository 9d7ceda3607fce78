// From the blocks of GGUF files to numbers.

#pragma once

#include <cstdint>
#include <string>

#include "code_group.h"
#include "thread_pool.h"

namespace octavo {

// How many elements a block holds, in how many bytes, and what they are.
struct QuantFormat {
    int64_t block_size;
    int64_t block_bytes;
    void (*decode)(const uint8_t* blocks, int64_t num_blocks, float* out);
    // Of the formats whose groups of 32 share a scale; null for the others.
    void (*decode_codes)(const uint8_t* blocks, int64_t num_blocks, CodeGroup* out);
    CodeRange code_range;
    const int8_t* table = nullptr;  // [16] the only codes of a format of four bits; null: all in the range

    // Of a row of so many elements. Throws std::invalid_argument if these are not whole blocks.
    int64_t row_bytes(int64_t num_elements) const;
};

// By ggml's name: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, MXFP4. I4 and I8 are whole numbers
// of 4 and 8 bits, TABLE4 places in a table of 16, a byte each. Throws std::invalid_argument for another.
const QuantFormat& find_quant_format(const std::string& name);

// Decodes num_blocks blocks that follow each other.
void dequantize(ThreadPool& pool, const QuantFormat& format, const uint8_t* blocks, int64_t num_blocks, float* out);

}  // namespace octavo
