#include "kv_cache.h"

#include <algorithm>
#include <limits>

namespace octavo {
namespace {

constexpr int64_t kMinWriteFloats = 4096;

}  // namespace

KvCache::KvCache(const KvShape& shape)
    : shape_(shape),
      buffer_(shape.num_layers * shape.layer_size()),
      population_(buffer_.data(), buffer_.size() * static_cast<int64_t>(sizeof(float))) {}

KvLayer KvCache::layer(int64_t i) {
    float* keys = buffer_.data() + i * shape_.layer_size();
    return {shape_, keys, keys + shape_.num_blocks * shape_.pages_per_block() * shape_.key_page_size()};
}

void KvCache::copy_blocks(ThreadPool& pool, const int32_t* pairs, int64_t num_pairs) {
    const int64_t key_size = shape_.pages_per_block() * shape_.key_page_size();
    const int64_t value_size = shape_.pages_per_block() * shape_.value_page_size();
    pool.parallel_for(shape_.num_layers, [&](int64_t i) {
        const KvLayer kv = layer(i);
        for (int64_t pair = 0; pair < num_pairs; ++pair) {
            const int64_t from = pairs[2 * pair], to = pairs[2 * pair + 1];
            if (from == to) continue;
            std::copy_n(kv.keys + from * key_size, key_size, kv.keys + to * key_size);
            std::copy_n(kv.values + from * value_size, value_size, kv.values + to * value_size);
        }
    });
}

void write_kv(ThreadPool& pool, ConstMatrix k, ConstMatrix v, const KvLayer& layer, const int32_t* slot_mapping) {
    const int64_t size = layer.shape.head_dim, value_stride = layer.shape.value_stride();
    pool.parallel_ranges(k.num_rows, kMinWriteFloats / (k.num_columns + 1) + 1, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
            if (slot_mapping[t] < 0) continue;
            const int64_t page = slot_mapping[t] / kPage, place = slot_mapping[t] % kPage;
            for (int64_t head = 0; head < layer.shape.num_kv_heads; ++head) {
                float* keys = layer.key_page(page, head) + place;
                const float* key = k.row(t) + head * size;
                for (int64_t d = 0; d < size; ++d) keys[d * kPage] = key[d];
                std::copy_n(v.row(t) + head * size, size, layer.value_page(page, head) + place * value_stride);
            }
        }
    });
}

}  // namespace octavo
