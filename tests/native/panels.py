"""An independent packer: numpy arrays to the panels of native/pack/layout.h, and activations to rows of activation.h.
Written from those two files alone, as a check on both sides of them; slow and plain on purpose.
"""

from __future__ import annotations

import ctypes

import numpy as np

from octavo.ops.native.abi import KIND_BF16, KIND_CODES, KIND_F16, Weight


def aligned(size: int) -> np.ndarray:
    """Zeroed bytes at a multiple of 64."""
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


def pad_64(plane: bytes) -> bytes:
    return plane + bytes(-len(plane) % 64)


class Panels:
    """A packed matrix of random weights, and the float64 numbers that it stands for."""

    def __init__(self, struct: Weight, panels: list[bytes], dense_OI: np.ndarray) -> None:
        assert len({len(panel) for panel in panels}) == 1
        self.data = aligned(sum(map(len, panels)))
        self.data[:] = np.frombuffer(b"".join(panels), np.uint8)
        struct.panel_bytes, struct.data = len(panels[0]), self.data.ctypes.data
        self.struct, self.dense_OI = struct, dense_OI

    @property
    def pointer(self) -> ctypes._Pointer:
        return ctypes.pointer(self.struct)


def random_codes(rows: int, columns: int, bits: int, group: int, has_min: bool, zero: int, lut: bool) -> Panels:
    """OCTAVO_CODES with random codes, scales of either sign, and mins."""
    rng = np.random.default_rng(rows * columns + bits + group)
    padded, full = -(-columns // 32) * 32, -(-rows // 16) * 16
    code_OI = rng.integers(0, 2**bits, (full, padded), np.uint8)
    table = np.sort(rng.choice(256, 16, replace=False)).astype(np.uint8) if lut else None
    scale_OG = rng.uniform(-0.02, 0.02, (full, padded // group)).astype(np.float16)
    min_OG = rng.uniform(-0.1, 0.1, scale_OG.shape).astype(np.float16) if has_min else None
    value_OI = (code_OI if table is None else table[code_OI]).astype(np.float64) - zero
    dense_OI = value_OI * np.repeat(scale_OG.astype(np.float64), group, 1)
    if min_OG is not None:
        dense_OI += np.repeat(min_OG.astype(np.float64), group, 1)
    panels = [
        code_planes(code_OI[o : o + 16], bits)
        + pad_64(scale_OG[o : o + 16].T.tobytes())
        + (pad_64(min_OG[o : o + 16].T.tobytes()) if min_OG is not None else b"")
        for o in range(0, full, 16)
    ]
    struct = Weight(KIND_CODES, bits, group, has_min, zero, lut, rows=rows, columns=columns, padded_columns=padded)
    if table is not None:
        struct.lut[:] = table.tolist()
    return Panels(struct, panels, dense_OI[:rows, :columns])


def code_planes(code_RI: np.ndarray, bits: int) -> bytes:
    """The codes of 16 rows: [block, line, row, 4 inputs], with 4 bits two lines in one."""
    line_BLRJ = code_RI.reshape(16, -1, 8, 4).transpose(1, 2, 0, 3)
    if bits == 8:
        return pad_64(line_BLRJ.tobytes())
    nibbles = line_BLRJ & 15
    planes = pad_64((nibbles[:, :4] | nibbles[:, 4:] << 4).tobytes())
    if bits == 5:
        planes += pad_64(np.packbits((line_BLRJ >> 4).ravel(), bitorder="little").tobytes())
    return planes


def random_dense(kind: int, rows: int, columns: int) -> Panels:
    """OCTAVO_BF16, F16 or F32 with normally distributed weights."""
    rng = np.random.default_rng(rows * columns + kind)
    padded, full = -(-columns // 32) * 32, -(-rows // 16) * 16
    value_OI = rng.standard_normal((full, columns)).astype(np.float32)
    struct = Weight(kind, rows=rows, columns=columns, padded_columns=padded)
    if kind == KIND_BF16:
        bits_OI = np.zeros((full, padded), np.uint16)
        bits_OI[:, :columns] = value_OI.view(np.uint32) >> 16
        stored_OI = (bits_OI.astype(np.uint32) << 16).view(np.float32)[:, :columns]
        panels = [bits_OI[o : o + 16].reshape(16, -1, 2).transpose(1, 0, 2).tobytes() for o in range(0, full, 16)]
    else:
        stored_OI = value_OI.astype(np.float16 if kind == KIND_F16 else np.float32)
        panels = [pad_64(stored_OI[o : o + 16].T.tobytes()) for o in range(0, full, 16)]
    return Panels(struct, panels, stored_OI[:rows].astype(np.float64))


def int8_rows(tokens: int, columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random activations as rows of activation.h: uint8 [T, row bytes], and the float64 [T, columns] they stand for."""
    rng = np.random.default_rng(seed)
    padded = -(-columns // 32) * 32
    code_TI = rng.integers(-127, 128, (tokens, padded)).astype(np.int8)
    code_TI[:, columns:] = 0
    scale_TG = rng.uniform(0.001, 0.02, (tokens, padded // 32)).astype(np.float32)
    half_sum_TH = code_TI.reshape(tokens, -1, 16).sum(2, dtype=np.int32)
    sum_TG = half_sum_TH.reshape(tokens, -1, 2).sum(2, dtype=np.int32)
    parts = [code_TI, scale_TG, scale_TG * sum_TG.astype(np.float32), -sum_TG, -half_sum_TH]
    used = np.concatenate([np.ascontiguousarray(part).view(np.uint8) for part in parts], axis=1)
    rows = np.full((tokens, -(-used.shape[1] // 64) * 64), 0xA5, np.uint8)
    rows[:, : used.shape[1]] = used
    value_TI = code_TI.astype(np.float64) * np.repeat(scale_TG.astype(np.float64), 32, 1)
    return rows, value_TI[:, :columns]


def bf16_rows(tokens: int, columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """uint16 [T, padded columns] zero padded, and the float64 [T, columns] they stand for."""
    value_TI = np.random.default_rng(seed).standard_normal((tokens, columns)).astype(np.float32)
    bits_TI = np.zeros((tokens, -(-columns // 32) * 32), np.uint16)
    bits_TI[:, :columns] = value_TI.view(np.uint32) >> 16
    return bits_TI, (bits_TI[:, :columns].astype(np.uint32) << 16).view(np.float32).astype(np.float64)
