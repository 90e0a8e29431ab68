// SILU_MUL: silu(gate) * up, where x is gate and up side by side.
#pragma once

#include OCTAVO_SIMD
#include "isa/chunks.h"
#include "isa/exp.h"

namespace octavo::OCTAVO_ISA {

// x * sigmoid(x). For very negative x exp overflows to inf, and the quotient is 0.
[[gnu::always_inline]] inline F32 silu(F32 x) { return div(x, add(splat(1.0f), exp(sub(zero(), x)))); }

// Values i .. i+n-1 of the product; `width` is that of the gate.
[[gnu::always_inline]] inline F32 gated(const float* gate_up, int width, int64_t i, int n) {
    return mul(silu(load_n(gate_up + i, n)), load_n(gate_up + width + i, n));
}

inline void silu_mul_row(const float* gate_up, int width, float* out) {
    for_vectors(width, [=](int i, int n) { store_n(out + i, gated(gate_up, width, i, n), n); });
}

inline void silu_mul(const octavo_op& op, const octavo_step& step, int task, Worker&) {
    for_rows(op, step, task, [&](int64_t t) { silu_mul_row(row(op.x, t), op.x.columns / 2, row(op.out, t)); });
}

}  // namespace octavo::OCTAVO_ISA
