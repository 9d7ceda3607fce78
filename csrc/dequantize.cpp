// The formats are ggml's (ggml-common.h, ggml-quants.c); d and m are halves, scale and minimum of a block:
//
//   Q4_0, Q5_0, Q8_0   x = d q            q signed
//   Q4_1, Q5_1         x = d q + m        q unsigned
//   Q4_K, Q5_K         x = d s q - m t    with a 6-bit scale s and minimum t for each 32 of 256 elements
//   Q6_K               x = d s q          with an 8-bit scale s for each 16 of 256 elements
//   MXFP4              x = 2^(e - 128) q  q twice a number of 4 bits, of which 2 are its exponent and 1 its fraction
//
// In the order written, each operation rounded: the bits are those of ggml without fused multiplication.

#include "dequantize.h"

#include <cmath>
#include <cstring>
#include <map>
#include <stdexcept>

#include "half.h"

namespace octavo {
namespace {

template <class T>
T read(const uint8_t* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

float half(const uint8_t* from) { return float_of_half(read<uint16_t>(from)); }

void decode_f32(const uint8_t* block, float* out) { *out = read<float>(block); }

void decode_f16(const uint8_t* block, float* out) { *out = half(block); }

void decode_bf16(const uint8_t* block, float* out) { *out = float_of_bits(uint32_t{read<uint16_t>(block)} << 16); }

// Of 32 elements the first half is in the low nibbles, the second in the high ones.
int nibble(const uint8_t* nibbles, int i) { return i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4; }

int fifth_bit(const uint8_t* bits, int i) { return (bits[i / 8] >> i % 8 & 1) << 4; }

void decode_q8_0(const uint8_t* block, CodeGroup* out) {
    out->scale = half(block);
    std::memcpy(out->codes, block + 2, sizeof out->codes);
}

void decode_q4_0(const uint8_t* block, CodeGroup* out) {
    out->scale = half(block);
    for (int i = 0; i < 32; ++i) out->codes[i] = static_cast<int8_t>(nibble(block + 2, i) - 8);
}

void decode_q4_1(const uint8_t* block, CodeGroup* out) {
    out->scale = half(block);
    out->minimum = half(block + 2);
    for (int i = 0; i < 32; ++i) out->codes[i] = static_cast<int8_t>(nibble(block + 4, i));
}

void decode_q5_0(const uint8_t* block, CodeGroup* out) {
    out->scale = half(block);
    for (int i = 0; i < 32; ++i)
        out->codes[i] = static_cast<int8_t>((nibble(block + 6, i) | fifth_bit(block + 2, i)) - 16);
}

void decode_q5_1(const uint8_t* block, CodeGroup* out) {
    out->scale = half(block);
    out->minimum = half(block + 2);
    for (int i = 0; i < 32; ++i) out->codes[i] = static_cast<int8_t>(nibble(block + 8, i) | fifth_bit(block + 4, i));
}

constexpr int8_t kTwiceE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void decode_mxfp4(const uint8_t* block, CodeGroup* out) {
    out->scale = std::ldexp(1.0f, block[0] - 128);
    for (int i = 0; i < 32; ++i) out->codes[i] = kTwiceE2M1[nibble(block + 1, i)];
}

// Scale and minimum of part i, of 8, of a Q4_K or Q5_K block, six bits each. The last four parts have their high bits
// above the six of the first four.
struct ScaleMin {
    int scale, minimum;

    ScaleMin(const uint8_t* packed, int i) {
        if (i < 4) {
            scale = packed[i] & 63;
            minimum = packed[i + 4] & 63;
        } else {
            scale = (packed[i + 4] & 15) | packed[i - 4] >> 6 << 4;
            minimum = packed[i + 4] >> 4 | packed[i] >> 6 << 4;
        }
    }
};

// Q4_K and Q5_K differ in a fifth bit: bit p of fifth[i] belongs to element i of part p.
void decode_parts(const uint8_t* block, const uint8_t* nibbles, const uint8_t* fifth, CodeGroup* out) {
    const float d = half(block), m = half(block + 2);
    for (int part = 0; part < 8; ++part) {
        const ScaleMin packed(block + 4, part);
        out[part].scale = d * static_cast<float>(packed.scale);
        out[part].minimum = -(m * static_cast<float>(packed.minimum));
        for (int i = 0; i < 32; ++i) {
            const int high = fifth == nullptr ? 0 : (fifth[i] >> part & 1) << 4;
            out[part].codes[i] = static_cast<int8_t>((nibbles[part / 2 * 32 + i] >> part % 2 * 4 & 15) | high);
        }
    }
}

void decode_q4_k(const uint8_t* block, CodeGroup* out) { decode_parts(block, block + 16, nullptr, out); }

void decode_q5_k(const uint8_t* block, CodeGroup* out) { decode_parts(block, block + 48, block + 16, out); }

void decode_q6_k(const uint8_t* block, float* out) {
    const uint8_t *low = block, *high = block + 128, *scales = block + 192;
    const float d = half(block + 208);
    for (int part = 0; part < 8; ++part) {  // of 32 elements, four to a half of the block
        const int in_half = part % 4;
        for (int i = 0; i < 32; ++i) {
            const int nibble = low[part / 4 * 64 + in_half % 2 * 32 + i] >> in_half / 2 * 4 & 15;
            const int q = (nibble | (high[part / 4 * 32 + i] >> in_half * 2 & 3) << 4) - 32;
            const float scale = d * static_cast<float>(read<int8_t>(scales + part * 2 + i / 16));
            out[part * 32 + i] = scale * static_cast<float>(q);
        }
    }
}

void decode_byte(const uint8_t* block, float* out) { *out = static_cast<int8_t>(*block); }

// A format whose blocks decode to floats.
template <int SIZE, int BYTES, void DECODE(const uint8_t* block, float* out), int SMALLEST = 0, int LARGEST = 0>
QuantFormat float_format() {
    return {SIZE,
            BYTES,
            [](const uint8_t* blocks, int64_t num_blocks, float* out) {
                for (int64_t i = 0; i < num_blocks; ++i) DECODE(blocks + i * BYTES, out + i * SIZE);
            },
            nullptr,
            {SMALLEST, LARGEST, Minimum::kNone}};
}

// A format whose blocks decode to codes from SMALLEST on, of BITS bits, or to some of these.
template <int SIZE, int BYTES, int BITS, int SMALLEST, Minimum MINIMUM, void DECODE(const uint8_t*, CodeGroup*)>
QuantFormat code_format(const int8_t* table = nullptr) {
    constexpr int GROUPS = SIZE / kGroupSize;
    return {SIZE,
            BYTES,
            [](const uint8_t* blocks, int64_t num_blocks, float* out) {
                CodeGroup groups[GROUPS];
                for (int64_t i = 0; i < num_blocks; ++i) {
                    DECODE(blocks + i * BYTES, groups);
                    for (const CodeGroup& group : groups)
                        for (const int8_t code : group.codes) {
                            const float product = group.scale * static_cast<float>(code);
                            *out++ = MINIMUM == Minimum::kAny ? product + group.minimum : product;  // -0 + 0 would be 0
                        }
                }
            },
            [](const uint8_t* blocks, int64_t num_blocks, CodeGroup* out) {
                for (int64_t i = 0; i < num_blocks; ++i) DECODE(blocks + i * BYTES, out + i * GROUPS);
            },
            {SMALLEST, SMALLEST + (1 << BITS) - 1, MINIMUM},
            table};
}

}  // namespace

int64_t QuantFormat::row_bytes(int64_t num_elements) const {
    if (num_elements % block_size != 0)
        throw std::invalid_argument("a row has " + std::to_string(num_elements) + " elements, expected a multiple of " +
                                    std::to_string(block_size));
    return num_elements / block_size * block_bytes;
}

const QuantFormat& find_quant_format(const std::string& name) {
    static const std::map<std::string, QuantFormat> format_by_name{
        {"I4", float_format<1, 1, decode_byte, -8, 7>()},
        {"I8", float_format<1, 1, decode_byte, -128, 127>()},
        {"TABLE4", float_format<1, 1, decode_byte, -127, 127>()},
        {"F32", float_format<1, 4, decode_f32>()},
        {"F16", float_format<1, 2, decode_f16>()},
        {"BF16", float_format<1, 2, decode_bf16>()},
        {"Q4_0", code_format<32, 18, 4, -8, Minimum::kNone, decode_q4_0>()},
        {"Q4_1", code_format<32, 20, 4, 0, Minimum::kAny, decode_q4_1>()},
        {"Q5_0", code_format<32, 22, 5, -16, Minimum::kNone, decode_q5_0>()},
        {"Q5_1", code_format<32, 24, 5, 0, Minimum::kAny, decode_q5_1>()},
        {"Q8_0", code_format<32, 34, 8, -128, Minimum::kNone, decode_q8_0>()},
        {"MXFP4", code_format<32, 17, 5, -16, Minimum::kNone, decode_mxfp4>(kTwiceE2M1)},
        {"Q4_K", code_format<256, 144, 4, 0, Minimum::kAny, decode_q4_k>()},
        {"Q5_K", code_format<256, 176, 5, 0, Minimum::kAny, decode_q5_k>()},
        {"Q6_K", float_format<256, 210, decode_q6_k>()},
    };
    const auto found = format_by_name.find(name);
    if (found != format_by_name.end()) return found->second;
    std::string known;
    for (const auto& [known_name, format] : format_by_name) known += (known.empty() ? "" : ", ") + known_name;
    throw std::invalid_argument("cannot dequantize " + name + ", only " + known);
}

void dequantize(ThreadPool& pool, const QuantFormat& format, const uint8_t* blocks, int64_t num_blocks, float* out) {
    pool.parallel_ranges(num_blocks, 65536 / format.block_size, [&](int64_t begin, int64_t end) {
        format.decode(blocks + begin * format.block_bytes, end - begin, out + begin * format.block_size);
    });
}

}  // namespace octavo
