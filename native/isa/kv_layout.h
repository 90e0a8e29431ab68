// What lies in a block of the KV cache: the one place that knows. STORE_KV writes it, ATTENTION reads it.
#pragma once

#include "octavo.h"

namespace octavo {

constexpr int kGroup = 16;          // tokens that lie in the lanes of one vector
constexpr int kMaxHeadDim = 512;

// A block holds its kv heads one after the other, a head its groups of 16 tokens, a group keys, values and scales. Head dims are filled
// up with zeros to a multiple of 16 (H below). All lines are of 64 bytes.
//   bf16: keys [H/2][16 tokens][2 dims]; values [8 pairs of tokens][H][2 tokens]
//   int8: keys [H/4][16 tokens][4 dims], as code + 128; values [8 pairs of tokens][H][2 tokens], as code;
//         float16 key_scale[16], value_scale[16]: x = scale * code, a scale per token and head
// Tokens of a pair lie together because products of 16-bit pairs are what the CPU sums fastest.
struct KvLayout {
    int padded;      // head dims
    int groups;      // of a head in a block
    int64_t half_bytes;   // of a group's keys, and of its values
    int64_t group_bytes;

    KvLayout(int dtype, int block_size, int head_dim)
        : padded((head_dim + 15) / 16 * 16),
          groups(block_size / kGroup),
          half_bytes(int64_t{padded} * kGroup * (dtype == OCTAVO_KV_INT8 ? 1 : 2)),
          group_bytes(2 * half_bytes + (dtype == OCTAVO_KV_INT8 ? 64 : 0)) {}

    explicit KvLayout(const octavo_kv& kv) : KvLayout(kv.dtype, kv.block_size, kv.head_dim) {}

    uint8_t* group(const octavo_kv& kv, int64_t block, int head, int g) const {
        return kv.data + block * kv.block_bytes + (int64_t{head} * groups + g) * group_bytes;
    }
};

}  // namespace octavo
