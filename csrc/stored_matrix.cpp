#include "stored_matrix.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace octavo {
namespace {

// True if codes in `range` can be exactly what the format holds. Where there is a minimum, it can move them to 0.
bool fits(const QuantFormat& format, const CodeRange& range) {
    const CodeRange& stored = format.code_range;
    if (format.decode_codes == nullptr) return false;
    if (range.has_minimum) return stored.largest - stored.smallest <= range.largest;
    return !stored.has_minimum && stored.smallest >= range.smallest && stored.largest <= range.largest;
}

}  // namespace

StoredMatrix::StoredMatrix(std::vector<StoredPart> parts, int64_t num_columns)
    : parts_(std::move(parts)), num_columns_(num_columns) {
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

void StoredMatrix::decode(int64_t i, int64_t begin, int64_t end, float* out) const {
    const StoredPart& part = part_of(i);
    const QuantFormat& format = *part.format;
    format.decode(part.block(i, begin), (end - begin) / format.block_size, out);
}

bool StoredMatrix::has_codes(const CodeRange& range) const {
    return std::all_of(parts_.begin(), parts_.end(), [&](const StoredPart& part) { return fits(*part.format, range); });
}

void StoredMatrix::decode_codes(int64_t i, int64_t begin, int64_t end, const CodeRange& range, CodeGroup* out) const {
    const int64_t row = i;
    const StoredPart& part = part_of(i);
    const QuantFormat& format = *part.format;
    if (!fits(format, range)) {
        float weights[kDecodeSize];
        decode(row, begin, end, weights);
        for (int64_t k = 0; k < end - begin; k += kGroupSize)
            *out++ =
                quantize_weights(weights + k, static_cast<int>(std::min<int64_t>(kGroupSize, end - begin - k)), range);
        return;
    }
    const int64_t num_groups = (end - begin) / kGroupSize;
    format.decode_codes(part.block(i, begin), (end - begin) / format.block_size, out);
    if (!range.has_minimum) return;
    for (CodeGroup* group = out; group < out + num_groups; ++group) {
        if (!format.code_range.has_minimum)
            group->minimum = group->scale * static_cast<float>(format.code_range.smallest);
        for (int8_t& code : group->codes) code = static_cast<int8_t>(code - format.code_range.smallest);
    }
}

}  // namespace octavo
