// octavo_weight_layout, octavo_packing_of and octavo_pack: from rows of a checkpoint to panels, without loss where float16
// can hold the scales.
#include <algorithm>
#include <cstring>

#include "octavo.h"
#include "pack/checkpoint_blocks.h"
#include "pack/panel.h"

namespace octavo {

namespace {

constexpr int kMostBlocks = 8;  // of 32 inputs in one checkpoint block

bool same_packing(const octavo_weight& a, const octavo_weight& b) {
    return a.kind == b.kind && a.bits == b.bits && a.group == b.group && a.has_min == b.has_min && a.zero == b.zero &&
           a.has_lut == b.has_lut && std::memcmp(a.lut, b.lut, sizeof a.lut) == 0;
}

void pack_codes(const octavo_weight& w, const CheckpointFormat& format, const uint8_t* raw, int64_t row_bytes, int rows,
                uint8_t* panel) {
    const Planes at = planes_of(w);
    const int blocks = format.inputs / kBlockInputs;
    Block block[kMostBlocks] = {};
    for (int i = 0; i < w.columns / format.inputs; ++i)
        for (int r = 0; r < rows; ++r) {
            // The same place of the next panel: 16 rows are too many streams for the hardware to follow.
            __builtin_prefetch(raw + (r + kPanelRows) * row_bytes + int64_t{i} * format.bytes);
            format.decode(raw + r * row_bytes + int64_t{i} * format.bytes, block);
            for (int b = 0; b < blocks; ++b) put_block(w, at, panel, i * blocks + b, r, block[b]);
        }
}

// A row as words of `size` bytes, one of which goes to each line: two bf16, one float16 or one float32. The lines are
// filled a cache's worth at a time.
template <int size>
void pack_words(const uint8_t* raw, int64_t row_bytes, int rows, uint8_t* panel) {
    constexpr int64_t kLines = 64;
    const int64_t words = row_bytes / size, rest = row_bytes % size;  // rest: an odd number of bf16
    for (int64_t first = 0; first < words; first += kLines)
        for (int r = 0; r < rows; ++r)
            for (int64_t i = first; i < std::min(first + kLines, words); ++i)
                std::memcpy(panel + (i * kPanelRows + r) * size, raw + r * row_bytes + i * size, size);
    for (int r = 0; r < rows; ++r)
        std::memcpy(panel + (words * kPanelRows + r) * size, raw + r * row_bytes + words * size, static_cast<size_t>(rest));
}

void pack_panel(const octavo_weight& w, const CheckpointFormat& format, const uint8_t* raw, int64_t row_bytes, int rows,
                uint8_t* panel) {
    std::memset(panel, 0, static_cast<size_t>(w.panel_bytes));  // missing rows, padded inputs, gaps between planes
    switch (w.kind) {
        case OCTAVO_CODES: return pack_codes(w, format, raw, row_bytes, rows, panel);
        case OCTAVO_F16: return pack_words<2>(raw, row_bytes, rows, panel);
        default: return pack_words<4>(raw, row_bytes, rows, panel);
    }
}

}  // namespace

}  // namespace octavo

extern "C" {

int64_t octavo_weight_layout(octavo_weight* weight) {
    octavo_weight& w = *weight;
    if (w.rows < 1 || w.columns < 1 || w.columns > octavo::kMostColumns) return -1;
    if (w.kind == OCTAVO_CODES && !((w.bits == 4 || w.bits == 5 || w.bits == 8) && (w.group == 16 || w.group == 32))) return -1;
    w.padded_columns = (w.columns + octavo::kBlockInputs - 1) / octavo::kBlockInputs * octavo::kBlockInputs;
    w.panel_bytes = static_cast<int32_t>(octavo::panel_bytes(w));
    return int64_t{w.panel_bytes} * octavo::panels_of(w);
}

int32_t octavo_packing_of(int32_t format, octavo_weight* weight) {
    const octavo::CheckpointFormat* found = octavo::checkpoint_format(format);
    if (found == nullptr) return -1;
    const octavo_weight& packing = found->packing;
    weight->kind = packing.kind;
    weight->bits = packing.bits;
    weight->group = packing.group;
    weight->has_min = packing.has_min;
    weight->zero = packing.zero;
    weight->has_lut = packing.has_lut;
    std::memcpy(weight->lut, packing.lut, sizeof packing.lut);
    return 0;
}

int32_t octavo_pack(const octavo_weight* weight, int32_t format, const uint8_t* raw, int64_t row_bytes, int32_t first_row,
                    int32_t count) {
    const octavo_weight& w = *weight;
    const octavo::CheckpointFormat* found = octavo::checkpoint_format(format);
    if (found == nullptr || !octavo::same_packing(w, found->packing)) return -1;
    if (w.columns % found->inputs != 0 || row_bytes != int64_t{w.columns / found->inputs} * found->bytes) return -1;
    if (!octavo::whole_panels(w, first_row, count)) return -1;
    for (int r = 0; r < count; r += octavo::kPanelRows) {
        uint8_t* panel = w.data + int64_t{(first_row + r) / octavo::kPanelRows} * w.panel_bytes;
        octavo::pack_panel(w, *found, raw + r * row_bytes, row_bytes, std::min(count - r, octavo::kPanelRows), panel);
    }
    return 0;
}

}  // extern "C"
