// Every operation is one float operation on one logit, so that all backends compute the same bits.

#include "logit_rules.h"

#include <algorithm>
#include <limits>

namespace octavo {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

// Calls function(id, place), where `place` is that of the id in the lists of all rows.
template <class Function>
void for_each_id(const IdLists& lists, int64_t row, Function&& function) {
    for (int32_t place = lists.start[row]; place < lists.start[row + 1]; ++place) function(lists.ids[place], place);
}

// Takes away the logits of ids whose bit is not set.
void apply_mask(const uint32_t* mask, int64_t size, float* logits) {
    for (int64_t begin = 0; begin < size; begin += 32) {
        const uint32_t word = mask[begin / 32];
        const int64_t count = std::min<int64_t>(32, size - begin);
        for (int64_t bit = 0; bit < count; ++bit) logits[begin + bit] = word >> bit & 1 ? logits[begin + bit] : kBanned;
    }
}

float penalize(float x, int32_t output_count, const LogitRules& rules, int64_t row) {
    x = x > 0 ? x / rules.repetition_penalty[row] : x * rules.repetition_penalty[row];
    x -= rules.frequency_penalty[row] * static_cast<float>(output_count);
    return output_count > 0 ? x - rules.presence_penalty[row] : x;
}

}  // namespace

const float* apply_rules(const LogitRules& rules, int64_t row, const float* logits, int64_t size,
                         std::vector<float>& changed) {
    const bool is_limited = rules.allowed.has_any(row);
    const uint32_t* mask = rules.masks.of_row(row);
    if (!is_limited && mask == nullptr && !rules.banned.has_any(row) && !rules.biased.has_any(row) &&
        !rules.seen.has_any(row))
        return logits;
    if (is_limited) {
        changed.assign(size, kBanned);
        for_each_id(rules.allowed, row, [&](int32_t id, int32_t) { changed[id] = logits[id]; });
    } else {
        changed.assign(logits, logits + size);
    }
    if (mask != nullptr) apply_mask(mask, size, changed.data());
    for_each_id(rules.banned, row, [&](int32_t id, int32_t) { changed[id] = kBanned; });
    for_each_id(rules.biased, row, [&](int32_t id, int32_t place) { changed[id] += rules.bias[place]; });
    for_each_id(rules.seen, row, [&](int32_t id, int32_t place) {
        changed[id] = penalize(changed[id], rules.output_counts[place], rules, row);
    });
    return changed.data();
}

}  // namespace octavo
