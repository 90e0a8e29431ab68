// ADD and GATHER: the row ops that are a line each. Norms, gates, rope and activations have files of their own.
#pragma once

#include <cstring>

#include OCTAVO_SIMD
#include "isa/chunks.h"

namespace octavo::OCTAVO_ISA {

inline void add_rows(const octavo_op& op, const octavo_step& step, int task, Worker&) {
    for_rows(op, step, task, [&](int64_t t) {
        const float *x = row(op.x, t), *y = row(op.y, t);
        float* out = row(op.out, t);
        for_vectors(op.x.columns, [=](int i, int n) { store_n(out + i, add(load_n(x + i, n), load_n(y + i, n)), n); });
    });
}

inline void gather(const octavo_op& op, const octavo_step& step, int task, Worker&) {
    const size_t bytes = sizeof(float) * static_cast<size_t>(op.x.columns);
    for_rows(op, step, task, [&](int64_t s) { std::memcpy(row(op.out, s), row(op.x, step.logit_S[s]), bytes); });
}

}  // namespace octavo::OCTAVO_ISA
