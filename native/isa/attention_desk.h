// What a task of ATTENTION has at hand: the readers of its unit, the tile it looks at, and the sums so far. Lies in the worker's scratch.
#pragma once

#include "isa/attention_join.h"

namespace octavo::OCTAVO_ISA {

constexpr int kTileGroups = kTile / kGroup;
constexpr int kQueryBytes = kMaxHeadDim * 2 + 64;          // the odd line keeps rows apart in the cache's sets
constexpr int kSumFloats = kPartHead + kMaxHeadDim + 16;
constexpr float kLog2OfE = 1.44269504f;

struct alignas(64) Desk {
    uint8_t query[kReaders][kQueryBytes];      // bf16 or int8, as the cache wants
    float query_scale[kReaders];               // what a sum of products is multiplied by to be a score, in powers of two
    int32_t query_sum[kReaders];               // int8: -128 times the sum of the codes
    int first_seen[kReaders], last_seen[kReaders];  // positions, both ends included; neither ever falls
    alignas(64) float score[kReaders][kTile];
    alignas(64) uint16_t weight[kReaders][kTile];   // bf16, or int16 in units of weight_unit
    float weight_unit[kReaders];
    alignas(64) float largest_score[kReaders];
    alignas(64) float tile_largest[kReaders];
    alignas(64) float fade[kReaders];          // what older sums are multiplied by since a larger score was seen
    alignas(64) float weight_sum[kReaders][16];
    alignas(64) float sum[kReaders][kSumFloats];    // of the split in work, as a part (attention_join.h)
    alignas(64) float total[kReaders][kSumFloats];  // of the splits before
    alignas(64) uint8_t clean[kMaxHeadDim * kGroup * 2];
};
static_assert(sizeof(Desk) <= kScratchBytes);

// Groups of 16 positions that some reader of the unit sees, by their place in the tile; the others' pointers are not set.
struct Tile {
    int position;
    int first_group, end_group;
    bool all_seen;                       // every position by every reader
    const uint8_t* group[kTileGroups];
    const uint8_t* value[kTileGroups];
    const uint8_t* ahead[kTileGroups];   // the group to be fetched meanwhile: that of the next tile
};

}  // namespace octavo::OCTAVO_ISA
