// NORM_QUANTIZE, NORM_NARROW, SILU_QUANTIZE, SILU_NARROW: what a norm or a gate computes goes to LINEAR's input form
// without a stop in memory. The same functions compute it, so the bits are those of the two ops one after the other.
#pragma once

#include "isa/activate.h"
#include "isa/gate.h"
#include "isa/norm.h"

namespace octavo::OCTAVO_ISA {

// The values of a normed row, for quantize_values and narrow_values.
struct NormedRow {
    const float* x;
    const float* weight;
    float inverse;

    NormedRow(const octavo_op& op, int64_t t) : x(row(op.x, t)), weight(op.vector), inverse(inverse_rms(x, op.x.columns, op.number)) {}
    [[gnu::always_inline]] F32 operator()(int64_t i, int n) const { return normed(load_n(x + i, n), inverse, load_n(weight + i, n)); }
};

struct GatedRow {
    const float* gate_up;
    int width;

    GatedRow(const octavo_op& op, int64_t t) : gate_up(row(op.x, t)), width(op.x.columns / 2) {}
    [[gnu::always_inline]] F32 operator()(int64_t i, int n) const { return gated(gate_up, width, i, n); }
};

inline void norm_quantize(const octavo_op& op, const octavo_step& step, int task, Worker&) {
    for_rows(op, step, task, [&](int64_t t) { quantize_values(NormedRow(op, t), op.x.columns, op.extra, quantized_row(op.out, t)); });
}

inline void norm_narrow(const octavo_op& op, const octavo_step& step, int task, Worker&) {
    for_rows(op, step, task, [&](int64_t t) { narrow_values(NormedRow(op, t), op.x.columns, op.extra, narrowed_row(op.out, t)); });
}

inline void silu_quantize(const octavo_op& op, const octavo_step& step, int task, Worker&) {
    for_rows(op, step, task, [&](int64_t t) { quantize_values(GatedRow(op, t), op.x.columns / 2, op.extra, quantized_row(op.out, t)); });
}

inline void silu_narrow(const octavo_op& op, const octavo_step& step, int task, Worker&) {
    for_rows(op, step, task, [&](int64_t t) { narrow_values(GatedRow(op, t), op.x.columns / 2, op.extra, narrowed_row(op.out, t)); });
}

}  // namespace octavo::OCTAVO_ISA
