#include "stored_matrix.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace octavo {

StoredMatrix::StoredMatrix(std::vector<StoredPart> parts, int64_t num_columns)
    : parts_(std::move(parts)), num_columns_(num_columns) {
    for (const StoredPart& part : parts_) {
        if (num_columns % part.format->block_size != 0)
            throw std::invalid_argument("a row has " + std::to_string(num_columns) + " elements, expected blocks of " +
                                        std::to_string(part.format->block_size));
        num_rows_ += part.num_rows;
    }
    if (num_rows_ == 0 || num_columns == 0) throw std::invalid_argument("the weight is empty");
}

StoredMatrix::StoredMatrix(ConstMatrix matrix)
    : StoredMatrix({{&find_quant_format("F32"), reinterpret_cast<const uint8_t*>(matrix.data), matrix.num_rows,
                     matrix.row_stride * static_cast<int64_t>(sizeof(float))}},
                   matrix.num_columns) {}

void StoredMatrix::decode(int64_t i, int64_t begin, int64_t end, float* out) const {
    const StoredPart* part = parts_.data();
    for (; i >= part->num_rows; ++part) i -= part->num_rows;
    const QuantFormat& format = *part->format;
    const uint8_t* row = part->data + i * part->row_stride;
    format.decode(row + begin / format.block_size * format.block_bytes, (end - begin) / format.block_size, out);
}

}  // namespace octavo
