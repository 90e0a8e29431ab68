// ROPE_STORE: [norms of the heads,] ROPE of queries and keys, and STORE_KV, token by token with the functions of these ops.
#pragma once

#include "isa/norm.h"
#include "isa/rope.h"
#include "isa/store_kv.h"

namespace octavo::OCTAVO_ISA {

// The heads of one token in place: normed where there are weights, then turned.
inline void norm_and_rope(float* x_NH, int heads, int head_dim, const float* weight_H, const octavo_op& op, int64_t position) {
    if (weight_H != nullptr)
        for (int h = 0; h < heads; ++h) {
            float* x_H = x_NH + int64_t{h} * head_dim;
            rms_norm_row(x_H, weight_H, head_dim, op.number, x_H);
        }
    rope_row(x_NH, heads, head_dim, op.vector, position, op.extra);
}

inline void rope_store(const octavo_op& op, const octavo_step& step, int task, Worker&) {
    const octavo_kv& kv = *op.kv;
    const KvLayout layout(kv);
    const int end = std::min(rows_of(op, step), (task + 1) * kTokensPerStore);
    for (int t = task * kTokensPerStore; t < end; ++t) {
        norm_and_rope(row(op.x, t), op.x.heads, kv.head_dim, op.vector_2, op, step.position_T[t]);
        norm_and_rope(row(op.y, t), kv.kv_heads, kv.head_dim, op.vector_3, op, step.position_T[t]);
        store_token(kv, layout, row(op.y, t), row(op.z, t), step.slot_T[t]);
    }
}

}  // namespace octavo::OCTAVO_ISA
