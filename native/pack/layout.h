// What lies in a panel of 16 output rows of a packed matrix. Written by pack/, read by isa/linear_*.h and embed.
//
// OCTAVO_CODES, inputs in blocks of 32, all blocks of a plane together, each plane padded to 64 bytes:
//   codes    4 bits: 4 lines of 64 bytes a block. Byte 4r + j of line t holds row r: input 4t + j in the low nibble,
//            input 16 + 4t + j in the high one.
//            5 bits: those, and in a plane of their own 8 words of 64 bits a block: bit 4r + j of word i is the fifth bit of
//            row r, input 4i + j.
//            8 bits: 8 lines a block; byte 4r + j of line i holds row r, input 4i + j.
//   scales   float16[16] per group (one per row); groups of 16 inputs: two a block
//   mins     like scales, where has_min
// OCTAVO_BF16: line i of 64 bytes holds inputs 2i, 2i+1 of each of the 16 rows, over padded_columns inputs.
// OCTAVO_F16, OCTAVO_F32: line i holds input i of each of the 16 rows (32 or 64 bytes), over `columns` inputs.
#pragma once

#include <cstdint>

#include "octavo.h"

namespace octavo {

constexpr int kPanelRows = 16;
constexpr int kBlockInputs = 32;
constexpr int kMostColumns = 1 << 24;  // of float32 in a panel: 1 GiB

struct Planes {  // byte offsets in a panel
    int64_t fifth_bits, scales, mins, end;
};

inline int64_t padded_64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

inline Planes planes_of(const octavo_weight& w) {
    const int64_t blocks = w.padded_columns / kBlockInputs;
    const int64_t scale_plane = padded_64(blocks * (kBlockInputs / w.group) * kPanelRows * 2);
    Planes at{};
    at.fifth_bits = blocks * (w.bits == 8 ? 512 : 256);
    at.scales = at.fifth_bits + (w.bits == 5 ? blocks * 64 : 0);
    at.mins = at.scales + scale_plane;
    at.end = at.mins + (w.has_min ? scale_plane : 0);
    return at;
}

inline int64_t panel_bytes(const octavo_weight& w) {
    switch (w.kind) {
        case OCTAVO_CODES: return planes_of(w).end;
        case OCTAVO_BF16: return int64_t{w.padded_columns} * kPanelRows * 2;
        case OCTAVO_F16: return padded_64(int64_t{w.columns} * kPanelRows * 2);
        default: return int64_t{w.columns} * kPanelRows * 4;
    }
}

inline int panels_of(const octavo_weight& w) { return (w.rows + kPanelRows - 1) / kPanelRows; }

// Whether `count` rows from `first_row` on are in the matrix and fill panels, the last one of the matrix excepted.
inline bool whole_panels(const octavo_weight& w, int32_t first_row, int32_t count) {
    if (first_row < 0 || count < 0 || count > w.rows - first_row || first_row % kPanelRows != 0) return false;
    return count % kPanelRows == 0 || first_row + count == w.rows;
}

}  // namespace octavo
