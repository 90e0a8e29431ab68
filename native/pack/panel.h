// Writing one Block of one row to its place in a panel, as layout.h lays it out.
#pragma once

#include <cstdint>
#include <cstring>

#include "pack/checkpoint_blocks.h"
#include "pack/layout.h"

namespace octavo {

// Bit 0 of each of the four bytes, gathered into the four lowest bits.
inline uint32_t gather_low_bits(uint32_t bytes) { return (bytes & 0x01010101u) * 0x10204080u >> 28; }

// The words of row `row` in the lines of block `b`. Fifth bits are added to a plane that was cleared before.
inline void put_codes(int bits, const Planes& at, uint8_t* panel, int b, int row, const uint8_t* code) {
    uint32_t word[8];
    std::memcpy(word, code, 32);
    uint8_t* line = panel + int64_t{b} * (bits == 8 ? 512 : 256) + 4 * row;
    if (bits == 8) {
        for (int i = 0; i < 8; ++i) std::memcpy(line + 64 * i, &word[i], 4);
        return;
    }
    if (bits == 5) {
        uint8_t* fifth = panel + at.fifth_bits + int64_t{b} * 64 + row / 2;
        for (int i = 0; i < 8; ++i) {
            fifth[8 * i] = static_cast<uint8_t>(fifth[8 * i] | gather_low_bits(word[i] >> 4) << (row % 2 * 4));
            word[i] &= 0x0F0F0F0Fu;
        }
    }
    for (int t = 0; t < 4; ++t) {
        const uint32_t both = word[t] | word[4 + t] << 4;
        std::memcpy(line + 64 * t, &both, 4);
    }
}

inline void put_halves(int groups, uint8_t* plane, int b, int row, const uint16_t* half) {
    for (int g = 0; g < groups; ++g) std::memcpy(plane + ((int64_t{b} * groups + g) * kPanelRows + row) * 2, half + g, 2);
}

inline void put_block(const octavo_weight& w, const Planes& at, uint8_t* panel, int b, int row, const Block& block) {
    const int groups = kBlockInputs / w.group;
    put_codes(w.bits, at, panel, b, row, block.code);
    put_halves(groups, panel + at.scales, b, row, block.scale);
    if (w.has_min) put_halves(groups, panel + at.mins, b, row, block.min);
}

}  // namespace octavo
