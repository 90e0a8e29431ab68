// The exported functions of the KV cache that need no kernel: sizes, and reading back what is stored.
#include <cstring>

#include "half.h"
#include "isa/attention_plan.h"
#include "isa/kv_layout.h"
#include "octavo.h"

namespace octavo {
namespace {

float bf16_at(const uint8_t* place) {
    uint32_t bits = 0;
    std::memcpy(reinterpret_cast<uint8_t*>(&bits) + 2, place, 2);
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

float half_at(const uint8_t* place) {
    uint16_t bits;
    std::memcpy(&bits, place, 2);
    return half_to_float(bits);
}

// One head of the token in lane `lane` of a group.
void read_bf16(const uint8_t* keys, const KvLayout& layout, int lane, int head_dim, float* key, float* value) {
    const uint8_t* pair = keys + layout.half_bytes + int64_t{lane / 2} * layout.padded * 4 + lane % 2 * 2;
    for (int d = 0; d < head_dim; ++d) {
        key[d] = bf16_at(keys + d / 2 * 64 + lane * 4 + d % 2 * 2);
        value[d] = bf16_at(pair + d * 4);
    }
}

void read_int8(const uint8_t* keys, const KvLayout& layout, int lane, int head_dim, float* key, float* value) {
    const uint8_t* pair = keys + layout.half_bytes + int64_t{lane / 2} * layout.padded * 2 + lane % 2;
    const uint8_t* scale = keys + 2 * layout.half_bytes;
    for (int d = 0; d < head_dim; ++d) {
        key[d] = static_cast<float>(keys[d / 4 * 64 + lane * 4 + d % 4] - 128) * half_at(scale + 2 * lane);
        value[d] = static_cast<float>(static_cast<int8_t>(pair[d * 2])) * half_at(scale + 2 * (kGroup + lane));
    }
}

}  // namespace
}  // namespace octavo

extern "C" {

int64_t octavo_kv_block_bytes(int32_t dtype, int32_t block_size, int32_t kv_heads, int32_t head_dim) {
    const bool known = dtype == OCTAVO_KV_BF16 || dtype == OCTAVO_KV_INT8;
    if (!known || block_size < 1 || block_size % octavo::kGroup != 0 || kv_heads < 1 || head_dim < 1 || head_dim > octavo::kMaxHeadDim)
        return -1;
    const octavo::KvLayout layout(dtype, block_size, head_dim);
    return layout.group_bytes * layout.groups * kv_heads;
}

void octavo_kv_read(const octavo_kv* kv, const int32_t* slot, int32_t count, float* key, float* value) {
    const octavo::KvLayout layout(*kv);
    const auto read = kv->dtype == OCTAVO_KV_INT8 ? octavo::read_int8 : octavo::read_bf16;
    for (int32_t i = 0; i < count; ++i) {
        const int offset = slot[i] % kv->block_size;
        for (int head = 0; head < kv->kv_heads; ++head, key += kv->head_dim, value += kv->head_dim)
            read(layout.group(*kv, slot[i] / kv->block_size, head, offset / octavo::kGroup), layout, offset % octavo::kGroup,
                 kv->head_dim, key, value);
    }
}

int64_t octavo_attention_scratch_bytes(int32_t max_tokens, int32_t heads, int32_t head_dim, int32_t max_len) {
    return octavo::attention_scratch_bytes(max_tokens, heads, head_dim, max_len);
}

}  // extern "C"
