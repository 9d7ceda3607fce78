#include "kv_cache.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "half.h"

namespace octavo {
namespace {

constexpr int64_t kMinWriteFloats = 4096;

// Rounds `size` numbers to elements, and returns their scale.
float encode(const float* from, int64_t size, float* to) {
    std::copy_n(from, size, to);
    return 1;
}

float encode(const float* from, int64_t size, BFloat16* to) {
    for (int64_t i = 0; i < size; ++i) to[i] = round_to_bfloat16(from[i]);
    return 1;
}

float encode(const float* from, int64_t size, int8_t* to) {
    int32_t largest_bits = 0;  // as whole numbers the bits of infinity and NaN are the largest
    for (int64_t i = 0; i < size; ++i) {
        int32_t bits;
        std::memcpy(&bits, from + i, sizeof bits);
        largest_bits = std::max(largest_bits, bits & 0x7fffffff);
    }
    const float scale = float_of_bits(largest_bits) / 127;
    const bool is_finite = largest_bits < 0x7f800000;
    if (!is_finite || scale < std::numeric_limits<float>::min()) {  // of so small numbers 0 is as good as any
        std::fill_n(to, size, int8_t{0});
        return is_finite ? 0 : std::numeric_limits<float>::quiet_NaN();
    }
    const float round = 12582912;  // 1.5 * 2^23: adding it and taking it away leaves the nearest integer
    for (int64_t i = 0; i < size; ++i)
        to[i] = static_cast<int8_t>(static_cast<int32_t>(from[i] / scale + round - round));
    return scale;
}

template <class Element>
void write_token(const float* k, const float* v, const KvLayer& layer, int64_t slot) {
    const int64_t size = layer.shape.head_dim, page = slot / kPage, place = slot % kPage;
    Element elements[kMaxHeadDim];
    for (int64_t head = 0; head < layer.shape.num_kv_heads; ++head) {
        const KvPage<Element> keys = layer.key_page<Element>(page, head);
        const KvPage<Element> values = layer.value_page<Element>(page, head);
        const float key_scale = encode(k + head * size, size, elements);
        for (int64_t d = 0; d < size; ++d) keys.elements[d * kPage + place] = elements[d];
        const float value_scale = encode(v + head * size, size, values.elements + place * layer.shape.value_stride());
        if constexpr (kHasScales<Element>) {
            keys.scales[place] = key_scale;
            values.scales[place] = value_scale;
        }
    }
}

}  // namespace

KvCache::KvCache(const KvShape& shape)
    : shape_(shape),
      buffer_(shape.num_layers * shape.layer_bytes()),
      population_(buffer_.data(), buffer_.num_bytes()) {}

KvLayer KvCache::layer(int64_t i) {
    std::byte* keys = buffer_.data() + i * shape_.layer_bytes();
    return {shape_, keys, keys + shape_.num_pages() * shape_.num_kv_heads * shape_.key_page_bytes()};
}

void KvCache::copy_blocks(ThreadPool& pool, const int32_t* pairs, int64_t num_pairs) {
    const int64_t num_pages = shape_.pages_per_block() * shape_.num_kv_heads;  // of a block, and heads
    const int64_t key_bytes = num_pages * shape_.key_page_bytes(), value_bytes = num_pages * shape_.value_page_bytes();
    pool.parallel_for(shape_.num_layers, [&](int64_t i) {
        const KvLayer kv = layer(i);
        for (int64_t pair = 0; pair < num_pairs; ++pair) {
            const int64_t from = pairs[2 * pair], to = pairs[2 * pair + 1];
            if (from == to) continue;
            std::copy_n(kv.keys + from * key_bytes, key_bytes, kv.keys + to * key_bytes);
            std::copy_n(kv.values + from * value_bytes, value_bytes, kv.values + to * value_bytes);
        }
    });
}

void write_kv(ThreadPool& pool, ConstMatrix k, ConstMatrix v, const KvLayer& layer, const int32_t* slot_mapping) {
    with_element(layer.shape.type, [&](auto element) {
        pool.parallel_ranges(k.num_rows, kMinWriteFloats / (k.num_columns + 1) + 1, [&](int64_t begin, int64_t end) {
            for (int64_t t = begin; t < end; ++t)
                if (slot_mapping[t] >= 0) write_token<decltype(element)>(k.row(t), v.row(t), layer, slot_mapping[t]);
        });
    });
}

}  // namespace octavo
