// Keys and values of all sequences, in blocks.

#pragma once

#include <cstdint>

#include "buffer.h"
#include "matrix.h"
#include "panel.h"
#include "population.h"
#include "thread_pool.h"

namespace octavo {

constexpr int kPage = kPanel;  // positions whose keys lie side by side; a block is one page or several

constexpr int64_t kMaxHeadDim = 256;

struct KvShape {
    int64_t num_layers;
    int64_t num_blocks;
    int64_t block_size;  // positions of a block, a multiple of kPage
    int64_t num_kv_heads;
    int64_t head_dim;  // D

    int64_t pages_per_block() const { return block_size / kPage; }
    int64_t value_stride() const { return (head_dim + kPanel - 1) / kPanel * kPanel; }  // D, up to whole panels
    int64_t key_page_size() const { return num_kv_heads * head_dim * kPage; }           // floats
    int64_t value_page_size() const { return num_kv_heads * value_stride() * kPage; }
    int64_t layer_size() const { return num_blocks * pages_per_block() * (key_page_size() + value_page_size()); }
};

// One layer's blocks: keys [page][head][D][16], so that 16 positions are scored at once, and values
// [page][head][16][D], so that a position is added as a vector. Page = block_id * pages_per_block + page of the block.
struct KvLayer {
    KvShape shape;
    float* keys;
    float* values;

    float* key_page(int64_t page, int64_t head) const {
        return keys + page * shape.key_page_size() + head * shape.head_dim * kPage;
    }
    float* value_page(int64_t page, int64_t head) const {
        return values + page * shape.value_page_size() + head * shape.value_stride() * kPage;
    }
};

class KvCache {
  public:
    // Allocates, and begins to touch. Throws AllocationError.
    explicit KvCache(const KvShape& shape);

    const KvShape& shape() const { return shape_; }
    KvLayer layer(int64_t i);

    // Copies keys and values of all layers from block pairs[2 i] to block pairs[2 i + 1], for i = 0, 1, ... in order.
    void copy_blocks(ThreadPool& pool, const int32_t* pairs, int64_t num_pairs);

  private:
    KvShape shape_;
    Buffer buffer_;
    Population population_;
};

// Stores the k and v of token t, [T, KV heads * D] both, in slot_mapping[t] = block_id * block_size + offset; tokens
// with a negative slot are skipped.
void write_kv(ThreadPool& pool, ConstMatrix k, ConstMatrix v, const KvLayer& layer, const int32_t* slot_mapping);

}  // namespace octavo
