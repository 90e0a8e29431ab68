// octavo_quantize_rows: float32 rows to panels of 8- or 4-bit codes. The arithmetic is isa/round_block.h's.
#include <algorithm>
#include <cstring>

#include "kernels.h"
#include "octavo.h"
#include "pack/panel.h"
#include "pack/rounded_block.h"

namespace octavo {

namespace {

bool is_target(const octavo_weight& w) {
    if (w.kind != OCTAVO_CODES || w.group != 32 || w.has_lut) return false;
    return w.bits == 8 ? w.zero == 128 && !w.has_min : w.bits == 4 && w.has_min;
}

// 32 inputs from `first` on of up to 16 rows, one in each column of x_IR. Beyond the last input 8 bits have zeros; a grid
// with a min need not hold zero, so 4 bits repeat the last input, which costs no accuracy. (Activations are zero there.)
void transpose(const octavo_weight& w, const float* row_RI, int rows, int first, float* x_IR) {
    const int inputs = std::min(kBlockInputs, w.columns - first);
    for (int r = 0; r < rows; ++r) {
        const float* x_I = row_RI + int64_t{r} * w.columns + first;
        for (int i = 0; i < inputs; ++i) x_IR[i * kPanelRows + r] = x_I[i];
        const float beyond = w.has_min ? x_I[inputs - 1] : 0.0f;
        for (int i = inputs; i < kBlockInputs; ++i) x_IR[i * kPanelRows + r] = beyond;
    }
}

void quantize_panel(const octavo_weight& w, const Kernels& kernels, const float* row_RI, int rows, uint8_t* panel) {
    const Planes at = planes_of(w);
    const auto round = w.bits == 8 ? kernels.round_to_8 : kernels.round_to_4;
    alignas(64) float x_IR[kBlockInputs * kPanelRows] = {};
    RoundedBlock rounded;
    std::memset(panel, 0, static_cast<size_t>(w.panel_bytes));  // missing rows and gaps between planes
    for (int b = 0; b < w.padded_columns / kBlockInputs; ++b) {
        transpose(w, row_RI, rows, b * kBlockInputs, x_IR);
        round(x_IR, rounded);
        for (int r = 0; r < rows; ++r) {
            Block block{};
            for (int i = 0; i < kBlockInputs; ++i) block.code[i] = static_cast<uint8_t>(rounded.code_IR[i][r] + w.zero);
            block.scale[0] = rounded.scale_R[r];
            block.min[0] = rounded.min_R[r];
            put_block(w, at, panel, b, r, block);
        }
    }
}

}  // namespace

}  // namespace octavo

extern "C" int32_t octavo_quantize_rows(const octavo_weight* weight, const float* row_RI, int32_t first_row, int32_t count) {
    const octavo_weight& w = *weight;
    if (!octavo::is_target(w) || !octavo::whole_panels(w, first_row, count)) return -1;
    const octavo::Kernels& kernels = *octavo::best_kernels(nullptr);
    for (int r = 0; r < count; r += octavo::kPanelRows) {
        uint8_t* panel = w.data + int64_t{(first_row + r) / octavo::kPanelRows} * w.panel_bytes;
        octavo::quantize_panel(w, kernels, row_RI + int64_t{r} * w.columns, std::min(count - r, octavo::kPanelRows), panel);
    }
    return 0;
}
