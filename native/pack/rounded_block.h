// What rounding float32 weights gives for 32 inputs of 16 rows. Written by isa/round_block.h, read by quantize.cpp.
#pragma once

#include <cstdint>

namespace octavo {

struct RoundedBlock {
    int8_t code_IR[32][16];  // 8 bits: -128 .. 127; 4 bits: 0 .. 15
    uint16_t scale_R[16];    // float16
    uint16_t min_R[16];      // float16; 4 bits only
};

}  // namespace octavo
