// EMBED: rows token_T of a packed matrix of any kind, as float32. Plain loops: a step embeds few rows, and the compiler
// makes vectors of them. Every value is the exact code arithmetic of octavo.h in one order, whatever the ISA level.
#pragma once

#include <algorithm>
#include <cstring>

#include "half.h"
#include "kernels.h"
#include "pack/layout.h"

namespace octavo::OCTAVO_ISA {

// The 32 codes of row `r` in block `b`.
inline void gather_codes(const octavo_weight& w, const Planes& at, const uint8_t* panel, int64_t b, int r, uint8_t* code) {
    const uint8_t* line = panel + b * (w.bits == 8 ? 512 : 256) + 4 * r;
    if (w.bits == 8) {
        for (int i = 0; i < 8; ++i) std::memcpy(code + 4 * i, line + 64 * i, 4);
        return;
    }
    for (int t = 0; t < 4; ++t)
        for (int j = 0; j < 4; ++j) {
            code[4 * t + j] = line[64 * t + j] & 15;
            code[16 + 4 * t + j] = line[64 * t + j] >> 4;
        }
    if (w.bits != 5) return;
    const uint8_t* fifth = panel + at.fifth_bits + b * 64 + r / 2;
    for (int i = 0; i < 32; ++i)
        code[i] = static_cast<uint8_t>(code[i] + ((fifth[i / 4 * 8] >> (r % 2 * 4 + i % 4)) & 1) * 16);
}

inline float half_at(const uint8_t* plane, int64_t group, int r) {
    uint16_t half;
    std::memcpy(&half, plane + (group * kPanelRows + r) * 2, 2);
    return half_to_float(half);
}

inline void embed_codes(const octavo_weight& w, const uint8_t* panel, int r, float* out_I) {
    const Planes at = planes_of(w);
    const int groups = kBlockInputs / w.group;
    for (int64_t b = 0; b * kBlockInputs < w.columns; ++b) {
        uint8_t code[kBlockInputs];
        float value[kBlockInputs];
        gather_codes(w, at, panel, b, r, code);
        if (w.has_lut)
            for (uint8_t& c : code) c = w.lut[c];
        for (int g = 0; g < groups; ++g) {
            const float scale = half_at(panel + at.scales, b * groups + g, r);
            const float min = w.has_min ? half_at(panel + at.mins, b * groups + g, r) : 0.0f;
            for (int i = g * w.group; i < (g + 1) * w.group; ++i) value[i] = scale * static_cast<float>(code[i] - w.zero) + min;
        }
        const int64_t inputs = std::min<int64_t>(kBlockInputs, w.columns - b * kBlockInputs);
        std::memcpy(out_I + b * kBlockInputs, value, static_cast<size_t>(inputs) * sizeof(float));
    }
}

inline void embed_plain(const octavo_weight& w, const uint8_t* panel, int r, float* out_I) {
    const auto* halves = reinterpret_cast<const uint16_t*>(panel);
    for (int64_t i = 0; i < w.columns; ++i) {
        if (w.kind == OCTAVO_F32) {
            std::memcpy(out_I + i, panel + (i * kPanelRows + r) * 4, 4);
        } else if (w.kind == OCTAVO_F16) {
            out_I[i] = half_to_float(halves[i * kPanelRows + r]);
        } else {
            const uint32_t bits = uint32_t{halves[(i / 2 * kPanelRows + r) * 2 + i % 2]} << 16;
            std::memcpy(out_I + i, &bits, 4);
        }
    }
}

// One task per token.
inline int embed_tasks(const octavo_op& op, const octavo_step& step, int) { return rows_of(op, step); }

inline void embed(const octavo_op& op, const octavo_step& step, int task, Worker&) {
    const octavo_weight& w = *op.weight;
    const int token = step.token_T[task];
    const uint8_t* panel = w.data + int64_t{token / kPanelRows} * w.panel_bytes;
    float* out_I = row(op.out, task);
    if (w.kind == OCTAVO_CODES)
        embed_codes(w, panel, token % kPanelRows, out_I);
    else
        embed_plain(w, panel, token % kPanelRows, out_I);
    if (op.number != 1.0f)
        for (int i = 0; i < w.columns; ++i) out_I[i] *= op.number;
}

}  // namespace octavo::OCTAVO_ISA
