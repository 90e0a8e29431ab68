// Writing keys and values of a step's tokens into the KV cache. Where in a block they lie is said in kv_layout.h.
#pragma once

#include <algorithm>
#include <cstring>

#include OCTAVO_SIMD
#include "half.h"
#include "isa/chunks.h"
#include "isa/kv_layout.h"

namespace octavo::OCTAVO_ISA {

constexpr int kTokensPerStore = 4;

// A head's dims, filled up with zeros to whole vectors: what follows may then forget about odd head dims.
inline void pad_head(const float* x, int head_dim, int padded, float* out) {
    for (int d = 0; d < padded; d += 16) store(out + d, load_n(x + d, std::min(16, head_dim - d)));
}

// Codes -127 .. 127 of one padded head with x = scale * code; the scale is a float16 number, whose bits are returned.
inline uint16_t quantize_head(const float* x, int padded, int8_t* code) {
    F32 top = zero();
    for (int d = 0; d < padded; d += 16) top = max(top, abs(load(x + d)));
    const uint16_t bits = float_to_half(std::min(largest(top) / 127.0f, half_to_float(kLargestHalf)));
    const float scale = half_to_float(bits);
    const F32 inverse = splat(scale > 0.0f ? 1.0f / scale : 0.0f);
    for (int d = 0; d < padded; d += 16) {
        const F32 x_inverse = mul(load(x + d), inverse);
        store_bytes(code + d, to_int(min(max(x_inverse, splat(-127.0f)), splat(127.0f))));
    }
    return bits;
}

// One token of one head into lane `lane` of its group. Elements are two bytes or one; keys go in runs of 4 bytes to every 64th, values
// each to every second place, where the other token of the pair may be written by another worker at the same time.
template <class Element>
inline void scatter_head(const Element* key, const Element* value, int padded, int lane, uint8_t* keys, uint8_t* values) {
    constexpr int kRun = 4 / sizeof(Element);
    for (int d = 0; d < padded; d += kRun) std::memcpy(keys + d / kRun * 64 + lane * 4, key + d, 4);
    auto* pair = reinterpret_cast<Element*>(values) + int64_t{lane / 2} * padded * 2 + lane % 2;
    for (int d = 0; d < padded; ++d) pair[2 * d] = value[d];
}

inline void store_head_bf16(const float* key, const float* value, const KvLayout& layout, int lane, uint8_t* group) {
    alignas(64) uint16_t k[kMaxHeadDim], v[kMaxHeadDim];
    for (int d = 0; d < layout.padded; d += 16) {
        store_bf16(k + d, load(key + d));
        store_bf16(v + d, load(value + d));
    }
    scatter_head(k, v, layout.padded, lane, group, group + layout.half_bytes);
}

inline void store_head_int8(const float* key, const float* value, const KvLayout& layout, int lane, uint8_t* group) {
    alignas(64) int8_t k[kMaxHeadDim], v[kMaxHeadDim];
    auto* scale = reinterpret_cast<uint16_t*>(group + 2 * layout.half_bytes);
    scale[lane] = quantize_head(key, layout.padded, k);
    scale[kGroup + lane] = quantize_head(value, layout.padded, v);
    for (int d = 0; d < layout.padded; ++d) k[d] = static_cast<int8_t>(k[d] ^ -128);  // + 128 as an unsigned byte
    scatter_head(k, v, layout.padded, lane, group, group + layout.half_bytes);
}

// Keys and values of token t, heads one after the other, into its slot.
inline void store_token(const octavo_kv& kv, const KvLayout& layout, const float* key, const float* value, int slot) {
    alignas(64) float k[kMaxHeadDim], v[kMaxHeadDim];
    const int block = slot / kv.block_size, offset = slot % kv.block_size;
    for (int head = 0; head < kv.kv_heads; ++head) {
        pad_head(key + int64_t{head} * kv.head_dim, kv.head_dim, layout.padded, k);
        pad_head(value + int64_t{head} * kv.head_dim, kv.head_dim, layout.padded, v);
        uint8_t* group = layout.group(kv, block, head, offset / kGroup);
        (kv.dtype == OCTAVO_KV_INT8 ? store_head_int8 : store_head_bf16)(k, v, layout, offset % kGroup, group);
    }
}

inline int store_kv_tasks(const octavo_op& op, const octavo_step& step, int) {
    return (rows_of(op, step) + kTokensPerStore - 1) / kTokensPerStore;
}

inline void store_kv(const octavo_op& op, const octavo_step& step, int task, Worker&) {
    const KvLayout layout(*op.kv);
    const int end = std::min(rows_of(op, step), (task + 1) * kTokensPerStore);
    for (int t = task * kTokensPerStore; t < end; ++t) store_token(*op.kv, layout, row(op.x, t), row(op.y, t), step.slot_T[t]);
}

}  // namespace octavo::OCTAVO_ISA
