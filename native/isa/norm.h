// RMS_NORM: x / sqrt(mean(x^2) + eps) * weight (arXiv 1910.07467), of a whole row or of each of its heads.
#pragma once

#include <cmath>

#include OCTAVO_SIMD
#include "isa/chunks.h"

namespace octavo::OCTAVO_ISA {

// 1 / sqrt(mean(x^2) + eps). Four partial sums, so that an addition need not wait for the one before it; the order of
// all additions depends on `columns` only.
inline float inverse_rms(const float* x, int columns, float eps) {
    F32 part[4] = {zero(), zero(), zero(), zero()};
    int i = 0;
    for (; i + 64 <= columns; i += 64)
        for (int p = 0; p < 4; ++p) {
            const F32 v = load(x + i + 16 * p);
            part[p] = fma(v, v, part[p]);
        }
    for_vectors(columns - i, [&](int at, int n) {
        const F32 v = load_n(x + i + at, n);
        part[at / 16] = fma(v, v, part[at / 16]);
    });
    const float square_sum = sum(add(add(part[0], part[1]), add(part[2], part[3])));
    return 1.0f / std::sqrt(square_sum / static_cast<float>(columns) + eps);
}

[[gnu::always_inline]] inline F32 normed(F32 x, float inverse, F32 weight) { return mul(mul(x, splat(inverse)), weight); }

// `out` may be `x`.
inline void rms_norm_row(const float* x, const float* weight, int columns, float eps, float* out) {
    const float inverse = inverse_rms(x, columns, eps);
    for_vectors(columns, [&](int i, int n) { store_n(out + i, normed(load_n(x + i, n), inverse, load_n(weight + i, n)), n); });
}

inline void rms_norm(const octavo_op& op, const octavo_step& step, int task, Worker&) {
    const int heads = std::max(1, op.x.heads), width = op.x.columns / heads;
    for_rows(op, step, task, [&](int64_t t) {
        for (int h = 0; h < heads; ++h)
            rms_norm_row(row(op.x, t) + h * width, op.vector, width, op.number, row(op.out, t) + h * width);
    });
}

}  // namespace octavo::OCTAVO_ISA
