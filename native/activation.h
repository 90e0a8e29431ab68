// Quantised activations, one row after the other: int8 per 32 inputs with a scale, and the sums that zero points and
// mins need. Written by QUANTIZE and its fusions, read by LINEAR over OCTAVO_CODES.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

// Row t of a view with OCTAVO_CODES activations begins at (char*)data + t * stride; stride is row_bytes(padded columns).
//   int8  code_I            the inputs, |code| <= 127; padding is 0
//   float scale_G[I/32]     x = scale * code;  0 for a group of zeros
//   float sum_G[I/32]       scale * (sum of the group's codes): what a min is multiplied by
//   int32 negated_sum_G[I/32]      -(sum of codes) per 32: times the zero point it is what dot products start from
//   int32 negated_half_sum[I/16]   the same per 16
struct Activation {
    const int8_t* code_I;
    const float* scale_G;
    const float* sum_G;
    const int32_t* negated_sum_G;
    const int32_t* negated_half_sum_H;

    static constexpr int64_t row_bytes(int64_t padded_columns) {
        return (padded_columns + padded_columns / 32 * 12 + padded_columns / 16 * 4 + 63) / 64 * 64;
    }

    static Activation at(const void* row, int64_t padded_columns) {
        const char* p = static_cast<const char*>(row);
        const int64_t groups = padded_columns / 32;
        Activation a;
        a.code_I = reinterpret_cast<const int8_t*>(p);
        a.scale_G = reinterpret_cast<const float*>(p + padded_columns);
        a.sum_G = a.scale_G + groups;
        a.negated_sum_G = reinterpret_cast<const int32_t*>(a.sum_G + groups);
        a.negated_half_sum_H = a.negated_sum_G + groups;
        return a;
    }
};

}  // namespace octavo
