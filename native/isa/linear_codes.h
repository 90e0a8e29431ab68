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
constexpr int kPrefetchBytes = 4096;

template <class F>
inline void prefetch_block(const CodePanel& panel, int b) {
    const uint8_t* ahead = panel.codes + int64_t{b} * F::block_bytes + kPrefetchBytes;
#pragma GCC unroll kUnroll
    for (int i = 0; i < (F::block_bytes + 63) / 64; ++i) prefetch(ahead + 64 * i);
}

// Few tokens: their sums stay in registers.
template <class F, int Tokens>
inline void codes_few(const octavo_op& op, const CodePanel& panel, int p, int token) {
    F32 sum_T[Tokens], min_sum_T[Tokens];
#pragma GCC unroll kUnroll
    for (int t = 0; t < Tokens; ++t) sum_T[t] = min_sum_T[t] = zero();
    for (int b = 0; b < panel.blocks; ++b) {
        prefetch_block<F>(panel, b);
        Bytes line[8];
        unpack<F>(panel, b, line);
        const Inputs in(op.x, op.weight->padded_columns, token, b);
        constexpr int kFirst = Tokens <= 4 ? Tokens : (Tokens + 1) / 2;
        add_block<F, 0, kFirst>(panel, line, b, in, sum_T, min_sum_T);
        if constexpr (kFirst < Tokens) add_block<F, kFirst, Tokens - kFirst>(panel, line, b, in, sum_T, min_sum_T);
    }
    const Output output{op};
#pragma GCC unroll kUnroll
    for (int t = 0; t < Tokens; ++t) output.write(token + t, p, F::min ? add(sum_T[t], min_sum_T[t]) : sum_T[t]);
}

struct Sums {  // of one panel and a tile of tokens; in L1, where reading and writing them hides behind the dot products
    alignas(64) float sum_TO[kTileTokens][kPanelRows];
    alignas(64) float min_sum_TO[kTileTokens][kPanelRows];
};

template <class F, int Tokens>
[[gnu::always_inline]] inline void add_block_in_memory(const CodePanel& panel, const Bytes (&line)[8], int b, const Inputs& in, Sums& sums, int t0) {
    F32 sum_T[Tokens], min_sum_T[Tokens];
#pragma GCC unroll kUnroll
    for (int t = 0; t < Tokens; ++t) {
        sum_T[t] = load(sums.sum_TO[t0 + t]);
        if constexpr (F::min) min_sum_T[t] = load(sums.min_sum_TO[t0 + t]);
    }
    add_block<F, 0, Tokens>(panel, line, b, in, sum_T, min_sum_T);
#pragma GCC unroll kUnroll
    for (int t = 0; t < Tokens; ++t) {
        store(sums.sum_TO[t0 + t], sum_T[t]);
        if constexpr (F::min) store(sums.min_sum_TO[t0 + t], min_sum_T[t]);
    }
}

// Many tokens: each unpacked block meets all of the tile.
template <class F>
inline void codes_many(const octavo_op& op, const CodePanel& panel, int p, int token, int tokens) {
    Sums sums;
    for (int t = 0; t < tokens; ++t) {
        store(sums.sum_TO[t], zero());
        if constexpr (F::min) store(sums.min_sum_TO[t], zero());
    }
    for (int b = 0; b < panel.blocks; ++b) {
        prefetch_block<F>(panel, b);
        Bytes line[8];
        unpack<F>(panel, b, line);
        Inputs in(op.x, op.weight->padded_columns, token, b);
        int t = 0;
        for (; t + 4 <= tokens; t += 4, in.row += 4 * in.stride) add_block_in_memory<F, 4>(panel, line, b, in, sums, t);
        switch (tokens - t) {
            case 3: add_block_in_memory<F, 3>(panel, line, b, in, sums, t); break;
            case 2: add_block_in_memory<F, 2>(panel, line, b, in, sums, t); break;
            case 1: add_block_in_memory<F, 1>(panel, line, b, in, sums, t); break;
        }
    }
    const Output output{op};
    for (int t = 0; t < tokens; ++t) {
        F32 sum = load(sums.sum_TO[t]);
        if constexpr (F::min) sum = add(sum, load(sums.min_sum_TO[t]));
        output.write(token + t, p, sum);
    }
}

template <class F>
void linear_codes_part(const octavo_op& op, const Part& part) {
    const Planes at = planes_of(*op.weight);
    for (int token = part.first_token; token < part.end_token; token += kTileTokens) {
        const int tokens = std::min(kTileTokens, part.end_token - token);
        for (int p = part.first_panel; p < part.end_panel; ++p) {
            const CodePanel panel(*op.weight, at, p);
            switch (tokens) {
                case 1: codes_few<F, 1>(op, panel, p, token); break;
                case 2: codes_few<F, 2>(op, panel, p, token); break;
                case 3: codes_few<F, 3>(op, panel, p, token); break;
                case 4: codes_few<F, 4>(op, panel, p, token); break;
                case 5: codes_few<F, 5>(op, panel, p, token); break;
                case 6: codes_few<F, 6>(op, panel, p, token); break;
                case 7: codes_few<F, 7>(op, panel, p, token); break;
                case 8: codes_few<F, 8>(op, panel, p, token); break;
#ifdef TILE8
                default: for(int t=0;t<tokens;t+=8) codes_few<F, 8>(op, panel, p, std::min(token+t,token+tokens-8)); break;
#endif
#ifndef TILE8
                default: codes_many<F>(op, panel, p, token, tokens);
#endif
            }
        }
    }
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
