// Rounding float32 weights to codes of 8 or 4 bits, 16 rows at a time, one in each lane. No fma: every ISA level gives the
// same bytes. Infinities and NaN give some finite weights.
#pragma once

#include <algorithm>

#include "half.h"
#include "pack/rounded_block.h"

namespace octavo::OCTAVO_ISA {

constexpr int kInputs = 32;
constexpr int kRows = 16;
constexpr float kLargestFloat16 = 65504.0f;

inline F32 load_bounded(const float* x_R) {
    return min(max(load(x_R), splat(-kLargestFloat16)), splat(kLargestFloat16));
}

// scale = largest / 127, in float16 rounded up where the largest would be more than half a step off: among subnormals.
inline void round_to_8(const float* x_IR, RoundedBlock& out) {
    F32 most = zero();
    for (int i = 0; i < kInputs; ++i) most = max(abs(load_bounded(x_IR + i * kRows)), most);
    alignas(64) float most_R[kRows], inverse_R[kRows];
    store(most_R, most);
    for (int r = 0; r < kRows; ++r) {
        uint16_t half = float_to_half(most_R[r] / 127.0f);
        if (half_to_float(half) * 127.5f < most_R[r]) ++half;
        out.scale_R[r] = half;
        inverse_R[r] = half == 0 ? 0.0f : 1.0f / half_to_float(half);
    }
    const F32 inverse = load(inverse_R);
    for (int i = 0; i < kInputs; ++i) store_bytes(out.code_IR[i], to_int(mul(load_bounded(x_IR + i * kRows), inverse)));
}

// Numbers as scale * code + offset, above the least of them, and the sums that a fit needs.
struct Shifted {
    alignas(64) float x_IR[kInputs * kRows];
    F32 sum, square_sum;
};

struct Line {
    alignas(64) float scale_R[kRows], offset_R[kRows], error_R[kRows];
};

inline F32 nearest_code(F32 x, F32 offset, F32 inverse) {
    return to_float(to_int(min(max(mul(sub(x, offset), inverse), zero()), splat(15.0f))));
}

// Rounds to the codes of the grid `offset + code / inverse`, then finds the line through (code, x) of least squared error.
inline Line fit_line(const Shifted& s, F32 offset, F32 inverse) {
    F32 c_sum = zero(), cc_sum = zero(), cx_sum = zero();
    for (int i = 0; i < kInputs; ++i) {
        const F32 x = load(s.x_IR + i * kRows), c = nearest_code(x, offset, inverse);
        c_sum = add(c_sum, c);
        cc_sum = add(cc_sum, mul(c, c));
        cx_sum = add(cx_sum, mul(c, x));
    }
    const F32 n = splat(static_cast<float>(kInputs));
    const F32 spread = max(sub(mul(n, cc_sum), mul(c_sum, c_sum)), splat(1.0f));  // a whole number; 0 when all codes are one
    const F32 scale = div(sub(mul(n, cx_sum), mul(c_sum, s.sum)), spread);
    const F32 shift = div(sub(s.sum, mul(scale, c_sum)), n);
    Line line;
    store(line.scale_R, scale);
    store(line.offset_R, shift);
    store(line.error_R, sub(sub(s.square_sum, mul(scale, cx_sum)), mul(shift, s.sum)));
    return line;
}

inline void keep_better(Line& best, const Line& other) {
    for (int r = 0; r < kRows; ++r) {
        const bool better = other.error_R[r] < best.error_R[r];
        best.scale_R[r] = better ? other.scale_R[r] : best.scale_R[r];
        best.offset_R[r] = better ? other.offset_R[r] : best.offset_R[r];
        best.error_R[r] = better ? other.error_R[r] : best.error_R[r];
    }
}

inline F32 inverse_of(const float* x_R, float numerator) {
    alignas(64) float inverse_R[kRows];
    for (int r = 0; r < kRows; ++r) inverse_R[r] = x_R[r] > 0.0f ? numerator / x_R[r] : 0.0f;
    return load(inverse_R);
}

// Tries grids whose 15 steps span from 15/14 to 15/16 of the range, fits a line to each, and once more to the best line's
// own codes. On normally distributed weights the squared error is 20 % below that of the plain range.
inline Line best_line(const Shifted& s, const float* range_R) {
    Line best = fit_line(s, zero(), inverse_of(range_R, 15.0f));
    for (int quarter = 56; quarter <= 64; ++quarter)
        keep_better(best, fit_line(s, zero(), inverse_of(range_R, static_cast<float>(quarter) * 0.25f)));
    keep_better(best, fit_line(s, load(best.offset_R), inverse_of(best.scale_R, 1.0f)));
    return best;
}

inline void round_to_4(const float* x_IR, RoundedBlock& out) {
    F32 low = splat(kLargestFloat16), high = splat(-kLargestFloat16);
    for (int i = 0; i < kInputs; ++i) {
        const F32 x = load_bounded(x_IR + i * kRows);
        low = min(x, low);
        high = max(x, high);
    }
    Shifted s;
    s.sum = s.square_sum = zero();
    for (int i = 0; i < kInputs; ++i) {
        const F32 x = sub(load_bounded(x_IR + i * kRows), low);
        store(s.x_IR + i * kRows, x);
        s.sum = add(s.sum, x);
        s.square_sum = add(s.square_sum, mul(x, x));
    }
    alignas(64) float low_R[kRows], range_R[kRows], scale_R[kRows], offset_R[kRows];
    store(low_R, low);
    store(range_R, sub(high, low));
    const Line best = best_line(s, range_R);
    for (int r = 0; r < kRows; ++r) {  // codes are rounded once more, against what float16 keeps of scale and min
        out.scale_R[r] = float_to_half(std::max(best.scale_R[r], 0.0f));
        out.min_R[r] = float_to_half(std::clamp(low_R[r] + best.offset_R[r], -kLargestFloat16, kLargestFloat16));
        scale_R[r] = half_to_float(out.scale_R[r]);
        offset_R[r] = half_to_float(out.min_R[r]) - low_R[r];
    }
    const F32 offset = load(offset_R), inverse = inverse_of(scale_R, 1.0f);
    for (int i = 0; i < kInputs; ++i)
        store_bytes(out.code_IR[i], to_int(nearest_code(load(s.x_IR + i * kRows), offset, inverse)));
}

}  // namespace octavo::OCTAVO_ISA
