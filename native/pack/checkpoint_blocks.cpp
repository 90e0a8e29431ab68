// One function per checkpoint format. Source of the layouts: the GGML block formats (ggml-common.h, ggml-quants.c), and the
// OCP Microscaling specification 1.0 for MXFP4. Checkpoints are little-endian, and so is every machine we run on.
#include "pack/checkpoint_blocks.h"

#include <bit>
#include <cstring>

#include "half.h"

namespace octavo {

namespace {

static_assert(std::endian::native == std::endian::little);

template <class T>
inline T read(const uint8_t* p) {
    T x;
    std::memcpy(&x, p, sizeof x);
    return x;
}

inline float read_half(const uint8_t* p) { return half_to_float(read<uint16_t>(p)); }

// 16 bytes with the first 16 codes of a block in their low nibbles and the last 16 in their high ones.
inline void split_nibbles(const uint8_t* packed, uint8_t* code) {
    for (int i = 0; i < 16; ++i) {
        code[i] = packed[i] & 15;
        code[16 + i] = packed[i] >> 4;
    }
}

inline void add_fifth_bits(uint32_t bits, uint8_t* code) {
    for (int i = 0; i < 32; ++i) code[i] = static_cast<uint8_t>(code[i] | ((bits >> i) & 1) << 4);
}

void decode_q4_0(const uint8_t* raw, Block* out) {
    out->scale[0] = read<uint16_t>(raw);
    split_nibbles(raw + 2, out->code);
}

void decode_q4_1(const uint8_t* raw, Block* out) {
    out->scale[0] = read<uint16_t>(raw);
    out->min[0] = read<uint16_t>(raw + 2);
    split_nibbles(raw + 4, out->code);
}

void decode_q5_0(const uint8_t* raw, Block* out) {
    out->scale[0] = read<uint16_t>(raw);
    split_nibbles(raw + 6, out->code);
    add_fifth_bits(read<uint32_t>(raw + 2), out->code);
}

void decode_q5_1(const uint8_t* raw, Block* out) {
    out->scale[0] = read<uint16_t>(raw);
    out->min[0] = read<uint16_t>(raw + 2);
    split_nibbles(raw + 8, out->code);
    add_fifth_bits(read<uint32_t>(raw + 4), out->code);
}

void decode_q8_0(const uint8_t* raw, Block* out) {
    out->scale[0] = read<uint16_t>(raw);
    for (int i = 0; i < 32; ++i) out->code[i] = raw[2 + i] ^ 0x80;  // plus 128
}

// The K formats: 8 Blocks of a super-block, whose scales and mins are small integers times float16s of the whole. Each
// product is rounded to float16; where it is below 6e-5 that loses bits which matter little beside larger weights.

void decode_q2_k(const uint8_t* raw, Block* out) {
    const uint8_t* quarters = raw + 16;
    const float d = read_half(raw + 80), dmin = read_half(raw + 82);
    for (int b = 0; b < 8; ++b) {
        for (int half = 0; half < 2; ++half) {
            const int packed = raw[2 * b + half];
            out[b].scale[half] = float_to_half(d * static_cast<float>(packed & 15));
            out[b].min[half] = float_to_half(-dmin * static_cast<float>(packed >> 4));
        }
        const uint8_t* bytes = quarters + b / 4 * 32;
        const int shift = b % 4 * 2;
        for (int i = 0; i < 32; ++i) out[b].code[i] = (bytes[i] >> shift) & 3;
    }
}

void decode_q3_k(const uint8_t* raw, Block* out) {
    const uint8_t *third_bits = raw, *quarters = raw + 32, *scales = raw + 96;
    const float d = read_half(raw + 108);
    for (int b = 0; b < 8; ++b) {
        for (int half = 0; half < 2; ++half) {
            const int s = 2 * b + half;
            const int low = s < 8 ? scales[s] & 15 : scales[s - 8] >> 4, high = (scales[8 + s % 4] >> (s / 4 * 2)) & 3;
            out[b].scale[half] = float_to_half(d * static_cast<float>((low | high << 4) - 32));
        }
        const uint8_t* bytes = quarters + b / 4 * 32;
        const int shift = b % 4 * 2;
        for (int i = 0; i < 32; ++i)
            out[b].code[i] = static_cast<uint8_t>(((bytes[i] >> shift) & 3) | ((third_bits[i] >> b) & 1) << 2);
    }
}

// The 6-bit scales and mins of Q4_K and Q5_K: the first four of each in 8 bytes, whose top bits complete the last four.
void set_k_scales(const uint8_t* raw, Block* out) {
    const float d = read_half(raw), dmin = read_half(raw + 2);
    const uint8_t* packed = raw + 4;
    for (int b = 0; b < 8; ++b) {
        const bool last = b >= 4;
        const int scale = last ? (packed[b + 4] & 15) | (packed[b - 4] >> 6) << 4 : packed[b] & 63;
        const int min = last ? packed[b + 4] >> 4 | (packed[b] >> 6) << 4 : packed[b + 4] & 63;
        out[b].scale[0] = float_to_half(d * static_cast<float>(scale));
        out[b].min[0] = float_to_half(-dmin * static_cast<float>(min));
    }
}

void decode_q4_k(const uint8_t* raw, Block* out) {
    set_k_scales(raw, out);
    for (int b = 0; b < 8; ++b) {
        const uint8_t* bytes = raw + 16 + b / 2 * 32;
        const int shift = b % 2 * 4;
        for (int i = 0; i < 32; ++i) out[b].code[i] = (bytes[i] >> shift) & 15;
    }
}

void decode_q5_k(const uint8_t* raw, Block* out) {
    set_k_scales(raw, out);
    const uint8_t* fifth_bits = raw + 16;
    for (int b = 0; b < 8; ++b) {
        const uint8_t* bytes = raw + 48 + b / 2 * 32;
        const int shift = b % 2 * 4;
        for (int i = 0; i < 32; ++i)
            out[b].code[i] = static_cast<uint8_t>(((bytes[i] >> shift) & 15) | ((fifth_bits[i] >> b) & 1) << 4);
    }
}

void decode_q6_k(const uint8_t* raw, Block* out) {
    const float d = read_half(raw + 208);
    for (int b = 0; b < 8; ++b) {
        for (int half = 0; half < 2; ++half) {
            const auto scale = static_cast<int8_t>(raw[192 + 2 * b + half]);
            out[b].scale[half] = float_to_half(d * static_cast<float>(scale));
        }
        const uint8_t *low = raw + b / 4 * 64 + b % 2 * 32, *high = raw + 128 + b / 4 * 32;
        const int low_shift = b % 4 / 2 * 4, high_shift = b % 4 * 2;
        for (int i = 0; i < 32; ++i)
            out[b].code[i] = static_cast<uint8_t>(((low[i] >> low_shift) & 15) | ((high[i] >> high_shift) & 3) << 4);
    }
}

void decode_iq4_xs(const uint8_t* raw, Block* out) {
    const float d = read_half(raw);
    const int high = read<uint16_t>(raw + 2);
    for (int b = 0; b < 8; ++b) {
        const int scale = ((raw[4 + b / 2] >> (b % 2 * 4)) & 15) | ((high >> (2 * b)) & 3) << 4;
        out[b].scale[0] = float_to_half(d * static_cast<float>(scale - 32));
        split_nibbles(raw + 8 + 16 * b, out[b].code);
    }
}

void decode_mxfp4(const uint8_t* raw, Block* out) {
    const uint32_t exponent = raw[0];  // of 2 ^ (exponent - 127); half of that, because the table holds doubled values
    const uint32_t bits = exponent < 2 ? 0 : (exponent - 1) << 23;  // the two below float32's range are zero in float16
    float scale;
    std::memcpy(&scale, &bits, 4);
    out->scale[0] = float_to_half(scale);
    split_nibbles(raw + 1, out->code);
}

constexpr uint8_t kIq4Values[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};  // plus 128
constexpr uint8_t kMxfp4Values[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};  // doubled, plus 16

constexpr octavo_weight plain(int32_t kind) {
    octavo_weight w{};
    w.kind = kind;
    return w;
}

constexpr octavo_weight codes(int32_t bits, int32_t group, int32_t zero) {
    octavo_weight w{};
    w.kind = OCTAVO_CODES;
    w.bits = bits;
    w.group = group;
    w.zero = zero;
    return w;
}

constexpr octavo_weight with_min(int32_t bits, int32_t group) {
    octavo_weight w = codes(bits, group, 0);
    w.has_min = 1;
    return w;
}

constexpr octavo_weight with_table(int32_t zero, const uint8_t (&values)[16]) {
    octavo_weight w = codes(4, 32, zero);
    w.has_lut = 1;
    for (int i = 0; i < 16; ++i) w.lut[i] = values[i];
    return w;
}

constexpr CheckpointFormat kFormats[] = {
    {0, 1, 4, nullptr, plain(OCTAVO_F32)},
    {1, 1, 2, nullptr, plain(OCTAVO_F16)},
    {30, 1, 2, nullptr, plain(OCTAVO_BF16)},
    {2, 32, 18, decode_q4_0, codes(4, 32, 8)},
    {3, 32, 20, decode_q4_1, with_min(4, 32)},
    {6, 32, 22, decode_q5_0, codes(5, 32, 16)},
    {7, 32, 24, decode_q5_1, with_min(5, 32)},
    {8, 32, 34, decode_q8_0, codes(8, 32, 128)},
    {10, 256, 84, decode_q2_k, with_min(4, 16)},
    {11, 256, 110, decode_q3_k, codes(4, 16, 4)},
    {12, 256, 144, decode_q4_k, with_min(4, 32)},
    {13, 256, 176, decode_q5_k, with_min(5, 32)},
    {14, 256, 210, decode_q6_k, codes(8, 16, 32)},
    {20, 32, 18, decode_q4_0, with_table(128, kIq4Values)},  // IQ4_NL lies like Q4_0
    {23, 256, 136, decode_iq4_xs, with_table(128, kIq4Values)},
    {39, 32, 17, decode_mxfp4, with_table(16, kMxfp4Values)},
};

}  // namespace

const CheckpointFormat* checkpoint_format(int32_t ggml) {
    for (const CheckpointFormat& format : kFormats)
        if (format.ggml == ggml) return &format;
    return nullptr;
}

}  // namespace octavo
