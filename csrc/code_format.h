// How the codes of quantized weights lie in memory, in panels of 16 outputs and groups of 32 along K.
//
// Of a group the bytes are those of a CodeVec after the other: for each four k, those of 16 outputs. All formats have
//
//   weight = scale * (number + kRange.smallest) + minimum
//
// where the number is a byte, a nibble or what a table has for a nibble, with a scale and, as kRange.minimum says, a
// minimum of each output and of one or several groups.

#pragma once

#include <cstdint>
#include <cstring>

#include "integer_dot.h"
#include "panel.h"
#include "quantized_rows.h"

namespace octavo {

// One byte a code.
template <Minimum MINIMUM>
struct ByteCodes {
    using Dot = WideDot;
    static constexpr CodeRange kRange{-128, 127, MINIMUM};
    static constexpr int64_t kGroupBytes = kPanel * kGroupSize;

    // The codes of k = 4 i ... 4 i + 3 for the outputs of vector c of the panel.
    static CodeVec load(const uint8_t* group, int i, int c) {
        return load_codes(group + i * 4 * kPanel + c * 4 * kWidth);
    }
    static int get(const uint8_t* group, int output, int k) { return group[k / 4 * 4 * kPanel + output * 4 + k % 4]; }
    // The bytes of an output's 32 codes.
    static void set(uint8_t* group, int output, const uint8_t* bytes) {
        for (int i = 0; i < kGroupSize / 4; ++i) std::memcpy(group + (i * kPanel + output) * 4, bytes + i * 4, 4);
    }
};

// Two nibbles a byte: of each eight k the first four in the low half, the last four in the high half.
struct Nibbles {
    static constexpr int64_t kGroupBytes = kPanel * kGroupSize / 2;

    static CodeVec load(const uint8_t* group, int i, int c) {
        const auto pairs = (ShortVec)load_codes(group + i / 2 * 4 * kPanel + c * 4 * kWidth);
        return (CodeVec)((i % 2 == 0 ? pairs : pairs >> 4) & 0x0f0f);
    }
    static int get(const uint8_t* group, int output, int k) {
        return group[k / 8 * 4 * kPanel + output * 4 + k % 4] >> k % 8 / 4 * 4 & 15;
    }
    // The nibbles of an output's 32 codes, in a byte each.
    static void set(uint8_t* group, int output, const uint8_t* nibbles) {
        for (int i = 0; i < kGroupSize / 8; ++i) {
            const uint32_t low = load_four_bytes(nibbles + i * 8), high = load_four_bytes(nibbles + i * 8 + 4);
            const uint32_t pairs = low | high << 4;
            std::memcpy(group + (i * kPanel + output) * 4, &pairs, 4);
        }
    }
};

template <Minimum MINIMUM>
struct NibbleCodes : Nibbles {
    using Dot = NarrowDot;
    static constexpr CodeRange kRange =
        MINIMUM == Minimum::kNone ? CodeRange{-8, 7, MINIMUM} : CodeRange{0, 15, MINIMUM};
};

// Nibbles that are places in a table of whole numbers, -127 to 127, which need not be evenly spaced.
class TableCodes {
  public:
    using Dot = WideDot;
    static constexpr CodeRange kRange{-128, 127, Minimum::kNone};
    static constexpr int64_t kGroupBytes = Nibbles::kGroupBytes;

    explicit TableCodes(const int8_t* table) {  // [16]
        for (size_t i = 0; i < sizeof bytes_; ++i) bytes_[i] = static_cast<uint8_t>(table[i % 16] - kRange.smallest);
        for (int i = 15; i >= 0; --i) places_[bytes_[i]] = static_cast<uint8_t>(i);
    }
    CodeVec load(const uint8_t* group, int i, int c) const {
        return look_up(load_codes(bytes_), Nibbles::load(group, i, c));
    }
    int get(const uint8_t* group, int output, int k) const { return bytes_[Nibbles::get(group, output, k)]; }
    // The bytes must be in the table.
    void set(uint8_t* group, int output, const uint8_t* bytes) const {
        uint8_t places[kGroupSize];
        for (int k = 0; k < kGroupSize; ++k) places[k] = places_[bytes[k]];
        Nibbles::set(group, output, places);
    }

  private:
    alignas(64) uint8_t bytes_[sizeof(CodeVec)];  // the table, for every 16 bytes of a vector
    uint8_t places_[256] = {};                    // of a byte in the table
};

}  // namespace octavo
