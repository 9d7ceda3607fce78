#include "stored_matrix.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace octavo {
namespace {

// True if codes in `range` can be exactly what the part holds. Where there is a minimum, it can move them to 0.
bool fits(const StoredPart& part, const CodeRange& range) {
    const CodeRange& stored = part.format->code_range;
    const int span = stored.largest - stored.smallest;
    if (part.has_scales_apart()) {
        if (range.minimum != Minimum::kNone)
            return range.minimum == Minimum::kMultiple && span <= range.largest - range.smallest;
        const int margin = part.scales.zeros == nullptr ? 0 : span;  // a code may be that far from its zero point
        return stored.smallest - margin >= range.smallest && stored.largest + margin <= range.largest;
    }
    if (part.format->decode_codes == nullptr || range.minimum == Minimum::kMultiple) return false;
    if (range.has_minimum()) return span <= range.largest;
    return !stored.has_minimum() && stored.smallest >= range.smallest && stored.largest <= range.largest;
}

// Columns [begin, end) of row i of a part whose scales lie apart, as codes in a range that fits.
void read_codes(const StoredPart& part, int64_t i, int64_t begin, int64_t end, const CodeRange& range, CodeGroup* out) {
    const StoredScales& scales = part.scales;
    for (int64_t k = begin; k < end; k += kGroupSize, ++out) {
        const auto* codes = reinterpret_cast<const int8_t*>(part.block(i, k));
        const int64_t count = std::min<int64_t>(kGroupSize, end - k),
                      group = i * scales.num_groups + k / scales.group_size;
        const int zero = scales.zeros == nullptr ? 0 : static_cast<int>(scales.zeros[group]);
        const int moved = range.has_minimum() ? range.smallest - part.format->code_range.smallest : -zero;
        out->scale = scales.scales[group];
        out->minimum = range.has_minimum() ? static_cast<float>(-(zero + moved)) : 0.0f;
        for (int64_t j = 0; j < kGroupSize; ++j)
            out->codes[j] = j < count ? static_cast<int8_t>(scales.number(codes[j]) + moved) : 0;
    }
}

}  // namespace

StoredMatrix::StoredMatrix(std::vector<StoredPart> parts, int64_t num_columns, std::vector<int32_t> order)
    : parts_(std::move(parts)), num_columns_(num_columns), order_(std::move(order)) {
    for (const StoredPart& part : parts_) num_rows_ += part.num_rows;
    if (num_rows_ == 0 || num_columns == 0) throw std::invalid_argument("the weight is empty");
}

StoredMatrix::StoredMatrix(ConstMatrix matrix)
    : StoredMatrix({{&find_quant_format("F32"), reinterpret_cast<const uint8_t*>(matrix.data), matrix.num_rows,
                     matrix.row_stride * static_cast<int64_t>(sizeof(float))}},
                   matrix.num_columns) {}

const StoredPart& StoredMatrix::part_of(int64_t& i) const {
    const StoredPart* part = parts_.data();
    for (; i >= part->num_rows; ++part) i -= part->num_rows;
    return *part;
}

int StoredMatrix::group_shift() const {
    int shift = 0;
    const auto is_shared = [&](const StoredPart& part) {
        const int64_t size = int64_t{kGroupSize} << (shift + 1);
        const int64_t group_size = part.scales.group_size;
        return part.has_scales_apart() && (group_size >= num_columns_ || group_size % size == 0);
    };
    while (int64_t{kGroupSize} << shift < num_columns_ && std::all_of(parts_.begin(), parts_.end(), is_shared)) ++shift;
    return shift;
}

const int8_t* StoredMatrix::table() const {
    const int8_t* table = parts_[0].table();
    const auto has_it = [&](const StoredPart& part) {
        return part.table() != nullptr && std::equal(table, table + 16, part.table());
    };
    return std::all_of(parts_.begin(), parts_.end(), has_it) ? table : nullptr;
}

void StoredMatrix::prefetch(int64_t i) const {
    const StoredPart& part = part_of(i);
    for (int64_t byte = 0; byte < part.format->row_bytes(num_columns_); byte += 64)
        __builtin_prefetch(part.block(i, 0) + byte);
}

void StoredMatrix::decode(int64_t i, int64_t begin, int64_t end, float* out) const {
    const StoredPart& part = part_of(i);
    const QuantFormat& format = *part.format;
    format.decode(part.block(i, begin), (end - begin) / format.block_size, out);
    if (!part.has_scales_apart()) return;
    const StoredScales& scales = part.scales;
    for (int64_t k = begin; k < end; ++k, ++out) {
        const int64_t group = i * scales.num_groups + k / scales.group_size;
        const int number = scales.number(static_cast<int>(*out));
        *out = scales.scales[group] *
               (static_cast<float>(number) - (scales.zeros == nullptr ? 0.0f : scales.zeros[group]));
    }
}

bool StoredMatrix::has_codes(const CodeRange& range) const {
    return std::all_of(parts_.begin(), parts_.end(), [&](const StoredPart& part) { return fits(part, range); });
}

void StoredMatrix::decode_codes(int64_t i, int64_t begin, int64_t end, const CodeRange& range, CodeGroup* out) const {
    const int64_t row = i;
    const StoredPart& part = part_of(i);
    const QuantFormat& format = *part.format;
    if (!fits(part, range)) {
        float weights[kDecodeSize];
        decode(row, begin, end, weights);
        for (int64_t k = 0; k < end - begin; k += kGroupSize)
            *out++ =
                quantize_weights(weights + k, static_cast<int>(std::min<int64_t>(kGroupSize, end - begin - k)), range);
        return;
    }
    if (part.has_scales_apart()) return read_codes(part, i, begin, end, range, out);
    const int64_t num_groups = (end - begin) / kGroupSize;
    format.decode_codes(part.block(i, begin), (end - begin) / format.block_size, out);
    if (!range.has_minimum()) return;
    for (CodeGroup* group = out; group < out + num_groups; ++group) {
        if (!format.code_range.has_minimum())
            group->minimum = group->scale * static_cast<float>(format.code_range.smallest);
        for (int8_t& code : group->codes) code = static_cast<int8_t>(code - format.code_range.smallest);
    }
}

}  // namespace octavo
