// LINEAR over weights that are plain numbers: bf16 (with bf16 inputs), float16 and float32 (with float32 inputs).
// An output is one sum over the inputs in their order (bf16: pairs of inputs), the same for every tile of tokens and panels.
#pragma once

#include "isa/linear_parts.h"

namespace octavo::OCTAVO_ISA {

// How the three kinds differ: a line of 16 rows is loaded and multiplied with the inputs it stands for.
struct DenseBf16 {
    using Input = uint16_t;
    using Line = Bytes;
    static constexpr int line_bytes = 64, line_inputs = 2;
    static int inputs(const octavo_weight& w) { return w.padded_columns; }
    static Line load_line(const uint8_t* p) { return load_64(p); }
    static F32 accumulate(F32 sum, Line w, const Input* x) { return dot_2(sum, w, x); }
};
struct DenseF16 {
    using Input = float;
    using Line = F32;
    static constexpr int line_bytes = 32, line_inputs = 1;
    static int inputs(const octavo_weight& w) { return w.columns; }
    static Line load_line(const uint8_t* p) { return load_f16(p); }
    static F32 accumulate(F32 sum, Line w, const Input* x) { return fma(w, splat(*x), sum); }
};
struct DenseF32 {
    using Input = float;
    using Line = F32;
    static constexpr int line_bytes = 64, line_inputs = 1;
    static int inputs(const octavo_weight& w) { return w.columns; }
    static Line load_line(const uint8_t* p) { return load(reinterpret_cast<const float*>(p)); }
    static F32 accumulate(F32 sum, Line w, const Input* x) { return fma(w, splat(*x), sum); }
};

// Panels that one pass serves: with few tokens several, or each sum would wait for its own last addition.
constexpr int panels_per_pass(int tokens) {
    constexpr int kSums = kTokensPerTile == 16 ? 24 : kTokensPerTile;  // that registers hold
    return tokens * 4 <= kSums ? 4 : tokens * 2 <= kSums ? 2 : 1;
}
constexpr int kDenseTokens = kTokensPerTile == 16 ? 12 : kTokensPerTile;  // with two panels: 24 sums, two lines, one input

template <class D, int Tokens, int Panels>
inline void dense_tile(const octavo_op& op, int p, int token) {
    using Input = typename D::Input;
    const octavo_weight& w = *op.weight;
    const uint8_t* panel_P[Panels];
    F32 sum_PT[Panels][Tokens];
#pragma GCC unroll kUnroll
    for (int n = 0; n < Panels; ++n) {
        panel_P[n] = w.data + int64_t{w.panel_bytes} * (p + n);
#pragma GCC unroll kUnroll
        for (int t = 0; t < Tokens; ++t) sum_PT[n][t] = zero();
    }
    const Input* x = static_cast<const Input*>(op.x.data) + token * op.x.stride;
    const int64_t stride = op.x.stride, lines = D::inputs(w) / D::line_inputs;
    for (int64_t i = 0; i < lines; ++i) {
        typename D::Line line_P[Panels];
#pragma GCC unroll kUnroll
        for (int n = 0; n < Panels; ++n) {
            line_P[n] = D::load_line(panel_P[n] + i * D::line_bytes);
            prefetch(panel_P[n] + i * D::line_bytes + 2048);
        }
#pragma GCC unroll kUnroll
        for (int t = 0; t < Tokens; ++t)
#pragma GCC unroll kUnroll
            for (int n = 0; n < Panels; ++n) sum_PT[n][t] = D::accumulate(sum_PT[n][t], line_P[n], x + t * stride + i * D::line_inputs);
    }
    const Output output{op};
#pragma GCC unroll kUnroll
    for (int n = 0; n < Panels; ++n)
#pragma GCC unroll kUnroll
        for (int t = 0; t < Tokens; ++t) output.write(token + t, p + n, sum_PT[n][t]);
}

template <class D>
void linear_dense_part(const octavo_op& op, const Part& part) {
    constexpr int kPanelsAtOnce = 4;  // stay in L2 while the tokens go by
    for (int first = part.first_panel; first < part.end_panel; first += kPanelsAtOnce) {
        const int end = std::min(first + kPanelsAtOnce, part.end_panel);
        for_tiles<kDenseTokens>(part.first_token, part.end_token, [&]<int Tokens>(int token) {
            constexpr int kPanels = panels_per_pass(Tokens);
            int p = first;
            for (; p + kPanels <= end; p += kPanels) dense_tile<D, Tokens, kPanels>(op, p, token);
            for (; p < end; ++p) dense_tile<D, Tokens, 1>(op, p, token);
        });
    }
}

}  // namespace octavo::OCTAVO_ISA
