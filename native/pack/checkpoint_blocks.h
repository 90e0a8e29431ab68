// The checkpoint formats that can be packed without loss: what a block of each is, as unsigned codes, scales and mins.
#pragma once

#include <cstdint>

#include "octavo.h"

namespace octavo {

// 32 inputs of one row. Scales and mins are float16; the second of each counts in groups of 16 inputs.
struct Block {
    uint8_t code[32];
    uint16_t scale[2];
    uint16_t min[2];
};

struct CheckpointFormat {
    int32_t ggml;   // the GGML type number
    int32_t inputs; // in one checkpoint block: 32, 256, or 1 for plain numbers
    int32_t bytes;  // of one checkpoint block
    void (*decode)(const uint8_t* raw, Block* out);  // one checkpoint block to inputs / 32 Blocks; nullptr for plain numbers
    octavo_weight packing;  // the fields that octavo_packing_of sets
};

// nullptr where this library has no packing for the format.
const CheckpointFormat* checkpoint_format(int32_t ggml);

}  // namespace octavo
