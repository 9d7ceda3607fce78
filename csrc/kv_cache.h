// Keys and values of all sequences, in blocks.

#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "bfloat16.h"
#include "buffer.h"
#include "matrix.h"
#include "panel.h"
#include "population.h"
#include "thread_pool.h"

namespace octavo {

constexpr int kPage = kPanel;  // positions whose keys lie side by side; a block is one page or several

constexpr int64_t kMaxHeadDim = 256;

// What keys and values are rounded to when they are written. An int8 is a code: times the scale that the key, or the
// value, of a position and KV head has to itself, it is the number.
enum class KvType { kFloat32, kBFloat16, kInt8 };

template <class Element>
constexpr bool kHasScales = std::is_same_v<Element, int8_t>;

// Calls function(element) with an element of this type.
template <class Function>
void with_element(KvType type, const Function& function) {
    if (type == KvType::kFloat32) return function(float{});
    if (type == KvType::kBFloat16) return function(BFloat16{});
    function(int8_t{});
}

struct KvShape {
    int64_t num_layers;
    int64_t num_blocks;
    int64_t block_size;  // positions of a block, a multiple of kPage
    int64_t num_kv_heads;
    int64_t head_dim;  // D
    KvType type;

    int64_t pages_per_block() const { return block_size / kPage; }
    int64_t num_pages() const { return num_blocks * pages_per_block(); }
    int64_t value_stride() const { return (head_dim + kPanel - 1) / kPanel * kPanel; }  // D, up to whole panels
    int64_t element_bytes() const { return type == KvType::kFloat32 ? 4 : type == KvType::kBFloat16 ? 2 : 1; }
    int64_t scales_bytes() const { return type == KvType::kInt8 ? kPage * sizeof(float) : 0; }
    int64_t key_page_bytes() const { return scales_bytes() + kPage * head_dim * element_bytes(); }
    int64_t value_page_bytes() const { return scales_bytes() + kPage * value_stride() * element_bytes(); }
    int64_t layer_bytes() const { return num_pages() * num_kv_heads * (key_page_bytes() + value_page_bytes()); }
};

// The keys of 16 positions and one KV head, [D][16], so that all are scored at once; or the values, [16][D], so that
// that of a position is added as a vector.
template <class Element>
struct KvPage {
    float* scales;  // [16], where the type has them; they lie in front of the elements
    Element* elements;
};

// One layer's blocks: the pages of keys [page][head], then the pages of values.
// Page = block_id * pages_per_block + page of the block.
struct KvLayer {
    KvShape shape;
    std::byte* keys;
    std::byte* values;

    template <class Element>
    KvPage<Element> key_page(int64_t page, int64_t head) const {
        return page_at<Element>(keys + (page * shape.num_kv_heads + head) * shape.key_page_bytes());
    }
    template <class Element>
    KvPage<Element> value_page(int64_t page, int64_t head) const {
        return page_at<Element>(values + (page * shape.num_kv_heads + head) * shape.value_page_bytes());
    }

  private:
    template <class Element>
    KvPage<Element> page_at(std::byte* page) const {
        return {reinterpret_cast<float*>(page), reinterpret_cast<Element*>(page + shape.scales_bytes())};
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
    NumberBuffer<std::byte> buffer_;
    Population population_;
};

// Stores the k and v of token t, [T, KV heads * D] both, in slot_mapping[t] = block_id * block_size + offset; tokens
// with a negative slot are skipped. bfloat16 is the nearest, of two the even one. An int8 scale is the largest |x| /
// 127 and a code the integer nearest to x / scale, of two the even one; NaN and infinity make all D numbers NaN.
void write_kv(ThreadPool& pool, ConstMatrix k, ConstMatrix v, const KvLayer& layer, const int32_t* slot_mapping);

}  // namespace octavo
