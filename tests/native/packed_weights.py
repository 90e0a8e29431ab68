"""Packed matrices for tests: checkpoint rows with chosen scales, packing them, and reading them back through EMBED."""

import ctypes

import gguf
import numpy as np
from native_ops import NativeTeam, step_of

from octavo.ops.native.abi import KIND_CODES, OpKind, Weight
from octavo.ops.native.library import load_library
from octavo.quant.formats import FORMATS

GUARD = 0xA5

# Where the float16 scales (and mins) of a block lie.
SCALE_BYTES = {
    "q4_0": [0],
    "q4_1": [0, 2],
    "q5_0": [0],
    "q5_1": [0, 2],
    "q8_0": [0],
    "q2_k": [80, 82],
    "q3_k": [108],
    "q4_k": [0, 2],
    "q5_k": [0, 2],
    "q6_k": [208],
    "iq4_nl": [0],
    "iq4_xs": [0],
    "mxfp4": [],
}
PLAIN = ["f32", "f16", "bf16"]
ROUND_TO_8 = {"kind": KIND_CODES, "bits": 8, "group": 32, "zero": 128}
ROUND_TO_4 = {"kind": KIND_CODES, "bits": 4, "group": 32, "has_min": 1}


class PackedWeight:
    """An octavo_weight over memory of its own, filled with ones and with a guard behind it."""

    def __init__(self, rows: int, columns: int, format: str | None = None, **packing: int) -> None:
        self.library = load_library()
        self.format = format
        self.struct = Weight(rows=rows, columns=columns, **packing)
        if format is not None:
            assert self.library.octavo_packing_of(FORMATS[format].ggml, ctypes.byref(self.struct)) == 0
        size = self.library.octavo_weight_layout(ctypes.byref(self.struct))
        assert size > 0
        memory = np.full(size + 128, GUARD, np.uint8)
        start = -memory.ctypes.data % 64
        self.data, self.guard = memory[start : start + size], memory[start + size : start + size + 64]
        self.data[:] = 0xFF
        self.struct.data = self.data.ctypes.data

    def pack(self, raw: np.ndarray, first_row: int = 0, count: int | None = None) -> int:
        """uint8 [count, bytes per row] to the rows from `first_row` on; what octavo_pack returns."""
        form = FORMATS[self.format or "f32"].ggml
        count = len(raw) if count is None else count
        weight = ctypes.byref(self.struct)
        return self.library.octavo_pack(weight, form, raw.ctypes.data, raw.shape[1], first_row, count)

    def quantize(self, rows_RI: np.ndarray, first_row: int = 0) -> int:
        assert rows_RI.dtype == np.float32
        assert rows_RI.flags.c_contiguous
        weight = ctypes.byref(self.struct)
        return self.library.octavo_quantize_rows(weight, rows_RI.ctypes.data, first_row, len(rows_RI))

    def unpack(self, team: NativeTeam, padding: bool = False) -> np.ndarray:
        """All rows as float32; with `padding`, the rows and inputs that fill panels and blocks up, too."""
        whole = Weight.from_buffer_copy(self.struct)
        if padding:
            whole.rows = -(-whole.rows // 16) * 16
            whole.columns = whole.padded_columns
        token_T = np.arange(whole.rows, dtype=np.int32)
        out_TD = np.full((whole.rows, whole.columns), np.nan, np.float32)
        step = step_of(whole.rows, token_T=token_T)
        team.run(OpKind.EMBED, step=step, weight=ctypes.pointer(whole), out=out_TD, number=1.0)
        return out_TD


def blocks(format: str, rows: int, columns: int, seed: int = 0, scales: np.ndarray | None = None) -> np.ndarray:
    """uint8 [rows, bytes per row]: blocks of random codes. `scales` (float16) are drawn from for each scale and min;
    without them they are between 0.001 and 0.03, of either sign."""
    form, rng = FORMATS[format], np.random.default_rng(seed)
    raw = rng.integers(0, 256, (rows, form.row_bytes(columns)), np.uint8)
    block = raw.reshape(-1, form.block_bytes)
    if scales is None:
        scales = (rng.uniform(0.001, 0.03, 4096) * rng.choice([-1, 1], 4096)).astype(np.float16)
    for at in SCALE_BYTES[format]:
        block[:, at : at + 2] = rng.choice(scales, len(block)).view(np.uint8).reshape(-1, 2)
    if format == "mxfp4":
        block[:, 0] = rng.integers(110, 132, len(block))
    return raw


def plain_rows(format: str, rows: int, columns: int) -> np.ndarray:
    """uint8 [rows, bytes per row] of normally distributed numbers."""
    values = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    if format == "bf16":
        return np.ascontiguousarray(values.view(np.uint16)[:, 1::2]).view(np.uint8)
    return values.astype({"f32": np.float32, "f16": np.float16}[format]).view(np.uint8)


def expected(raw: np.ndarray, format: str) -> np.ndarray:
    """What the gguf package makes of checkpoint rows."""
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(FORMATS[format].ggml)).astype(np.float32)
