// QUANTIZE and NARROW: float32 rows to what LINEAR multiplies, int8 per 32 inputs (activation.h) or bf16. The values
// may be computed on the way (fuse.h), so the rows are read through a function.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>

#include OCTAVO_SIMD
#include "activation.h"
#include "isa/chunks.h"

namespace octavo::OCTAVO_ISA {

// Where the parts of one quantised row are written.
struct QuantizedRow {
    int8_t* code_I;
    float* scale_G;
    float* sum_G;
    int32_t* negated_sum_G;
    int32_t* negated_half_sum_H;

    QuantizedRow(void* row, int64_t padded_columns) {  // the row is ours to write: Activation is const for its readers
        const Activation at = Activation::at(row, padded_columns);
        code_I = const_cast<int8_t*>(at.code_I);
        scale_G = const_cast<float*>(at.scale_G);
        sum_G = const_cast<float*>(at.sum_G);
        negated_sum_G = const_cast<int32_t*>(at.negated_sum_G);
        negated_half_sum_H = const_cast<int32_t*>(at.negated_half_sum_H);
    }

    void write_constant(int64_t g, float scale) const {
        std::memset(code_I + 32 * g, 0, 32);
        scale_G[g] = scale;
        sum_G[g] = scale * 0.0f;
        negated_sum_G[g] = negated_half_sum_H[2 * g] = negated_half_sum_H[2 * g + 1] = 0;
    }
};

// Group g from its 32 values. Where one is NaN or infinite no code can stand for it: the scale is NaN (or inf), the sum NaN,
// and so is all that is computed from them. Below 2^-100 a reciprocal might overflow: as good as zero.
[[gnu::always_inline]] inline void quantize_group(F32 low, F32 high, int64_t g, const QuantizedRow& out) {
    // As integers, the bits of |x| are ordered as the numbers are, and NaN is the largest of all.
    const int32_t bits = largest_int(max_int(bits_of(abs(low)), bits_of(abs(high))));
    float largest;
    std::memcpy(&largest, &bits, 4);
    if (!(largest <= std::numeric_limits<float>::max())) return out.write_constant(g, largest);
    if (largest < 0x1p-100f) return out.write_constant(g, 0.0f);
    const F32 reciprocal = splat(127.0f / largest);
    int8_t* code = out.code_I + 32 * g;
    store_bytes(code, to_int(mul(low, reciprocal)));
    store_bytes(code + 16, to_int(mul(high, reciprocal)));
    const int32_t low_sum = sum_bytes(code), high_sum = sum_bytes(code + 16);
    const float scale = largest / 127.0f;
    out.scale_G[g] = scale;
    out.sum_G[g] = scale * static_cast<float>(low_sum + high_sum);
    out.negated_sum_G[g] = -(low_sum + high_sum);
    out.negated_half_sum_H[2 * g] = -low_sum;
    out.negated_half_sum_H[2 * g + 1] = -high_sum;
}

// Groups first_group and on from the values x, of which the last group may lack some.
inline void quantize_groups(const float* x, int columns, int64_t first_group, const QuantizedRow& out) {
    int64_t g = first_group;
    for (; columns >= 32; columns -= 32, x += 32) quantize_group(load(x), load(x + 16), g++, out);
    if (columns > 16)
        quantize_group(load(x), load_n(x + 16, columns - 16), g, out);
    else if (columns > 0)
        quantize_group(load_n(x, columns), zero(), g, out);
}

inline void quantize_padding(int columns, int64_t padded_columns, const QuantizedRow& out) {
    for (int64_t g = (columns + 31) / 32; g < padded_columns / 32; ++g) out.write_constant(g, 0.0f);
}

inline void quantize_row(const float* x, int columns, int64_t padded_columns, void* row) {
    const QuantizedRow out(row, padded_columns);
    quantize_groups(x, columns, 0, out);
    quantize_padding(columns, padded_columns, out);
}

// value(i, n): values i .. i+n-1 of the row, n in 1..16. Computed some way ahead: a group waits for its largest value, and
// the processor would not look far enough past that to begin with the next values.
template <class Value>
inline void quantize_values(Value value, int columns, int64_t padded_columns, void* row) {
    constexpr int kAhead = 512;
    const QuantizedRow out(row, padded_columns);
    alignas(64) float ahead[kAhead];
    for (int begin = 0; begin < columns; begin += kAhead) {
        const int count = std::min(kAhead, columns - begin);
        for_vectors(count, [&](int i, int n) { store_n(ahead + i, value(begin + i, n), n); });
        quantize_groups(ahead, count, begin / 32, out);
    }
    quantize_padding(columns, padded_columns, out);
}

template <class Value>
inline void narrow_values(Value value, int columns, int64_t padded_columns, void* row) {
    auto* out = static_cast<uint16_t*>(row);
    int64_t i = 0;
    for (; i + 16 <= columns; i += 16) store_bf16(out + i, value(i, 16));
    if (i < columns) {
        uint16_t last[16];
        store_bf16(last, value(i, static_cast<int>(columns - i)));
        std::memcpy(out + i, last, static_cast<size_t>(columns - i) * 2);
    }
    std::memset(out + columns, 0, static_cast<size_t>(padded_columns - columns) * 2);
}

inline void narrow_row(const float* x, int columns, int64_t padded_columns, void* row) {
    narrow_values([=](int64_t i, int n) { return load_n(x + i, n); }, columns, padded_columns, row);
}

// Row t of int8 activations (stride in bytes) and of bf16 ones (stride in elements).
inline void* quantized_row(const octavo_view& view, int64_t t) { return static_cast<char*>(view.data) + t * view.stride; }
inline void* narrowed_row(const octavo_view& view, int64_t t) { return static_cast<uint16_t*>(view.data) + t * view.stride; }

inline void quantize(const octavo_op& op, const octavo_step& step, int task, Worker&) {
    for_rows(op, step, task, [&](int64_t t) { quantize_row(row(op.x, t), op.x.columns, op.extra, quantized_row(op.out, t)); });
}

inline void narrow(const octavo_op& op, const octavo_step& step, int task, Worker&) {
    for_rows(op, step, task, [&](int64_t t) { narrow_row(row(op.x, t), op.x.columns, op.extra, narrowed_row(op.out, t)); });
}

}  // namespace octavo::OCTAVO_ISA
