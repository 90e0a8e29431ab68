// ROPE: dimensions p and p + P of a head form a pair, turned by the angle of its position (arXiv 2104.09864).
#pragma once

#include OCTAVO_SIMD
#include "isa/chunks.h"

namespace octavo::OCTAVO_ISA {

// In place, the first 2 * pairs of a head's dimensions. No fma: then the result is numpy's, bit for bit.
inline void rope_head(float* x_H, const float* cos_P, const float* sin_P, int pairs) {
    for_vectors(pairs, [=](int p, int n) {
        const F32 cos = load_n(cos_P + p, n), sin = load_n(sin_P + p, n);
        const F32 first = load_n(x_H + p, n), second = load_n(x_H + pairs + p, n);
        store_n(x_H + p, sub(mul(first, cos), mul(second, sin)), n);
        store_n(x_H + pairs + p, add(mul(second, cos), mul(first, sin)), n);
    });
}

// All heads of one token. cos_sin is [positions, 2, pairs].
inline void rope_row(float* x_NH, int heads, int head_dim, const float* cos_sin, int64_t position, int pairs) {
    const float* cos_P = cos_sin + position * 2 * pairs;
    for (int h = 0; h < heads; ++h) rope_head(x_NH + h * head_dim, cos_P, cos_P + pairs, pairs);
}

inline void rope(const octavo_op& op, const octavo_step& step, int task, Worker&) {
    const int heads = std::max(1, op.x.heads);
    for_rows(op, step, task, [&](int64_t t) {
        rope_row(row(op.x, t), heads, op.x.columns / heads, op.vector, step.position_T[t], op.extra);
    });
}

}  // namespace octavo::OCTAVO_ISA
