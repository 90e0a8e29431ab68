// LINEAR over quantised weights (OCTAVO_CODES) and int8 activations. T tokens, G groups of 32 inputs.
//
// Per panel and block of 32 inputs the codes are unpacked once to unsigned bytes, 16 rows x 4 inputs a register; each token
// then takes 8 integer dot products of 16 rows, exact in any order, and its sum grows by dot * (weight scale * activation scale).
// That is one fma per block in the order of the blocks, the mins in a sum of their own: the same for every number of tokens.
#pragma once

#include "activation.h"
#include "isa/linear_parts.h"

namespace octavo::OCTAVO_ISA {

// What a packed format leaves open; one set of kernels per combination.
template <int Bits, int Group, bool Min, bool Lut>
struct Form {
    static constexpr int bits = Bits, halves = 32 / Group;
    static constexpr bool min = Min, lut = Lut;
    static constexpr int code_bytes = Bits == 8 ? 512 : 256;  // of a block
    static constexpr int scale_bytes = halves * 32;
    static constexpr int block_bytes = code_bytes + (Bits == 5 ? 64 : 0) + scale_bytes * (Min ? 2 : 1);
};

// One panel, its planes, and what all its blocks share.
struct CodePanel {
    const uint8_t *codes, *fifth_bits, *scales, *mins;
    Bytes table;
    int blocks, zero;

    CodePanel(const octavo_weight& w, const Planes& at, int panel)
        : codes(w.data + int64_t{w.panel_bytes} * panel),
          fifth_bits(codes + at.fifth_bits),
          scales(codes + at.scales),
          mins(codes + at.mins),
          table(load_table(w.lut)),
          blocks(w.padded_columns / kBlockInputs),
          zero(w.zero) {}
};

// Line i of block b: inputs 4i .. 4i+3 of 16 rows.
template <class F>
inline Bytes unpack_line(const CodePanel& panel, int b, int i) {
    const uint8_t* codes = panel.codes + int64_t{b} * F::code_bytes;
    if constexpr (F::bits == 8) return load_64(codes + 64 * i);
    const Bytes both = load_64(codes + 64 * (i & 3));
    Bytes line = i < 4 ? low_nibbles(both) : high_nibbles(both);
    if constexpr (F::bits == 5) line = add_16_where(line, panel.fifth_bits + int64_t{b} * 64 + 8 * i);
    if constexpr (F::lut) line = look_up(panel.table, line);
    return line;
}

// The activations of some tokens at one block.
struct Inputs {
    const char* row;  // of the first token
    int64_t stride;
    int64_t code, scale, sum, negated_sum, negated_half_sum;  // bytes from the row's begin to the block's values

    Inputs(const octavo_view& x, int64_t padded_columns, int token, int b) : row(static_cast<const char*>(x.data) + token * x.stride), stride(x.stride) {
        const int64_t groups = padded_columns / 32;
        code = int64_t{b} * 32;
        scale = padded_columns + int64_t{b} * 4;
        sum = scale + groups * 4;
        negated_sum = sum + groups * 4;
        negated_half_sum = negated_sum + groups * 4 + int64_t{b} * 4;
    }

    template <class Value>
    Value at(int t, int64_t offset) const {
        Value v;
        std::memcpy(&v, row + t * stride + offset, sizeof v);
        return v;
    }
};

// Adds block b of the panel to the sums of Count tokens from First on. Their dot products run side by side: each hides the
// latency of the others.
template <class F, int First, int Count, int Tokens>
[[gnu::always_inline]] inline void add_block(const CodePanel& panel, const Bytes (&line)[8], int b, const Inputs& in, F32 (&sum_T)[Tokens],
                                             F32 (&min_sum_T)[Tokens]) {
    constexpr int kLines = 8 / F::halves;
#pragma GCC unroll kUnroll
    for (int half = 0; half < F::halves; ++half) {
        I32 dot_T[Count];
#pragma GCC unroll kUnroll
        for (int t = 0; t < Count; ++t) {
            if constexpr (F::min) {
                dot_T[t] = zero_int();
            } else {
                const int32_t negated = F::halves == 1 ? in.at<int32_t>(First + t, in.negated_sum) : in.at<int32_t>(First + t, in.negated_half_sum + 4 * half);
                dot_T[t] = splat_int(negated * panel.zero);
            }
        }
#pragma GCC unroll kUnroll
        for (int i = 0; i < kLines; ++i)
#pragma GCC unroll kUnroll
            for (int t = 0; t < Count; ++t)
                dot_T[t] = dot_4(dot_T[t], line[half * kLines + i], in.row + (First + t) * in.stride + in.code + 4 * (half * kLines + i));
        const F32 scale = load_f16(panel.scales + int64_t{b} * F::scale_bytes + 32 * half);
#pragma GCC unroll kUnroll
        for (int t = 0; t < Count; ++t)
            sum_T[First + t] = fma(to_float(dot_T[t]), mul(scale, splat(in.at<float>(First + t, in.scale))), sum_T[First + t]);
        if constexpr (F::min) {
            const F32 min = load_f16(panel.mins + int64_t{b} * F::scale_bytes + 32 * half);
#pragma GCC unroll kUnroll
            for (int t = 0; t < Count; ++t) {
                const float inputs = F::halves == 1 ? in.at<float>(First + t, in.sum)
                                                    : in.at<float>(First + t, in.scale) * static_cast<float>(-in.at<int32_t>(First + t, in.negated_half_sum + 4 * half));
                min_sum_T[First + t] = fma(min, splat(inputs), min_sum_T[First + t]);
            }
        }
    }
}

template <class F>
inline void unpack(const CodePanel& panel, int b, Bytes (&line)[8]) {
#pragma GCC unroll kUnroll
    for (int i = 0; i < 8; ++i) line[i] = unpack_line<F>(panel, b, i);
}

// The stream of weights runs ahead of its use by this much: DRAM latency times a core's share of the bandwidth, and to spare.
constexpr int kPrefetchBytes = 8192;

template <class F>
inline void prefetch_block(const CodePanel& panel, int b) {
    const uint8_t* ahead = panel.codes + int64_t{b} * F::block_bytes + kPrefetchBytes;
#pragma GCC unroll kUnroll
    for (int i = 0; i < (F::block_bytes + 63) / 64; ++i) prefetch_later(ahead + 64 * i);
}

// Tokens whose sums, two each with mins, stay in registers beside the block's 8 lines.
constexpr int kCodeTokens = kTokensPerTile / 2;

template <class F, int Tokens>
inline void codes_tile(const octavo_op& op, const CodePanel& panel, int p, int token) {
    F32 sum_T[Tokens], min_sum_T[Tokens];
#pragma GCC unroll kUnroll
    for (int t = 0; t < Tokens; ++t) sum_T[t] = min_sum_T[t] = zero();
    for (int b = 0; b < panel.blocks; ++b) {
        prefetch_block<F>(panel, b);
        Bytes line[8];
        unpack<F>(panel, b, line);
        const Inputs in(op.x, op.weight->padded_columns, token, b);
        constexpr int kFirst = Tokens <= 4 ? Tokens : (Tokens + 1) / 2;  // up to 4 at once: as many as the latency asks for
        add_block<F, 0, kFirst>(panel, line, b, in, sum_T, min_sum_T);
        if constexpr (kFirst < Tokens) add_block<F, kFirst, Tokens - kFirst>(panel, line, b, in, sum_T, min_sum_T);
    }
    const Output output{op};
#pragma GCC unroll kUnroll
    for (int t = 0; t < Tokens; ++t) output.write(token + t, p, F::min ? add(sum_T[t], min_sum_T[t]) : sum_T[t]);
}

template <class F>
void linear_codes_part(const octavo_op& op, const Part& part) {
    const Planes at = planes_of(*op.weight);
    const uint8_t* first = op.weight->data + int64_t{op.weight->panel_bytes} * part.first_panel;
    for (int i = 0; i < kPrefetchBytes; i += 64) prefetch_later(first + i);
    for_stretches(part, [&](int first_token, int end_token) {
        for (int p = part.first_panel; p < part.end_panel; ++p) {
            const CodePanel panel(*op.weight, at, p);
            for_tiles<kCodeTokens>(first_token, end_token, [&]<int Tokens>(int token) { codes_tile<F, Tokens>(op, panel, p, token); });
        }
    });
}

template <int Bits, int Group>
inline void linear_codes_with(const octavo_op& op, const Part& part) {
    const octavo_weight& w = *op.weight;
    if constexpr (Bits == 4) {
        if (w.has_lut) return w.has_min ? linear_codes_part<Form<4, Group, true, true>>(op, part) : linear_codes_part<Form<4, Group, false, true>>(op, part);
    }
    return w.has_min ? linear_codes_part<Form<Bits, Group, true, false>>(op, part) : linear_codes_part<Form<Bits, Group, false, false>>(op, part);
}

inline void linear_codes(const octavo_op& op, const Part& part) {
    const bool by_16 = op.weight->group == 16;
    switch (op.weight->bits) {
        case 4: return by_16 ? linear_codes_with<4, 16>(op, part) : linear_codes_with<4, 32>(op, part);
        case 5: return by_16 ? linear_codes_with<5, 16>(op, part) : linear_codes_with<5, 32>(op, part);
        default: return by_16 ? linear_codes_with<8, 16>(op, part) : linear_codes_with<8, 32>(op, part);
    }
}

}  // namespace octavo::OCTAVO_ISA
