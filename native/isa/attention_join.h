// Joining a query's sums over splits of its context. One text for splits that one task takes in turn and for those spread over tasks.
#pragma once

#include <algorithm>
#include <cstring>

#include "isa/attention_plan.h"
#include "isa/chunks.h"
#include "isa/power_of_two.h"

namespace octavo::OCTAVO_ISA {

constexpr float kNothingSeen = -1e30f;  // as largest score; finite, so that differences stay numbers

// Sums lie as attention_plan.h says: [largest score, sum of weights, .., H sums of weighted values], weights relative to the largest.
inline void clear_part(float* part, int padded) {
    std::memset(part, 0, sizeof(float) * static_cast<size_t>(part_floats(padded)));
    part[0] = kNothingSeen;
}

// total = total and part together. Nothing seen in either leaves the other exactly as it was.
inline void join_part(float* total, const float* part, int padded) {
    const float largest_score = std::max(total[0], part[0]);
    alignas(64) float fade[16] = {total[0] - largest_score, part[0] - largest_score};
    store(fade, power_of_two(load(fade)));
    total[0] = largest_score;
    total[1] = total[1] * fade[0] + part[1] * fade[1];
    const F32 old_fade = splat(fade[0]), new_fade = splat(fade[1]);
    for (int d = kPartHead; d < kPartHead + padded; d += 16)
        store(total + d, fma(load(part + d), new_fade, mul(load(total + d), old_fade)));
}

// The weighted mean of the values. Adding zero makes -0 and 0 the same bits: which of them a sum ends in is chance.
inline void write_mean(const float* total, int head_dim, float* out) {
    const F32 inverse = splat(1.0f / total[1]);
    for (int d = 0; d < head_dim; d += 16) {
        store_n(out + d, fma(load(total + kPartHead + d), inverse, zero()), std::min(16, head_dim - d));
    }
}

// Where reader `reader` of a row and kv head has its query or output: token and head in the group.
inline float* reader_head(const octavo_view& view, const octavo_kv& kv, const RowWork& work, int kv_head, int reader) {
    const int group = view.heads / kv.kv_heads, token = work.first_token + reader / group;
    return row(view, token) + int64_t{kv_head * group + reader % group} * kv.head_dim;
}

inline int attention_join_tasks(const octavo_op& op, const octavo_step& step, int) { return AttentionPlan(op, step).joins(); }

inline void attention_join(const octavo_op& op, const octavo_step& step, int task, Worker& worker) {
    const AttentionPlan plan(op, step);
    const KvLayout layout(*op.kv);
    auto* total = reinterpret_cast<float*>(worker.scratch);
    plan.for_join(task, [&](const RowWork& work, const Unit& unit) {
        for (int reader = unit.first_reader; reader < unit.end_reader; ++reader) {
            clear_part(total, layout.padded);
            for (int split = unit.first_split; split < unit.end_split; ++split)
                join_part(total, plan.part(work, unit.kv_head, reader, split), layout.padded);
            write_mean(total, op.kv->head_dim, reader_head(op.out, *op.kv, work, unit.kv_head, reader));
        }
    });
}

}  // namespace octavo::OCTAVO_ISA
