"""Rope: the table of rotary cosines and sines over positions, made once and read by every layer.

Shapes: T tokens in the step, N heads, H head dim, P rotary pairs.
"""

from __future__ import annotations

import numpy as np

from octavo.layers.rope_scaling import Rotation
from octavo.ops.backend import Array, Backend

_CHUNK = 1024  # positions worked out at a time, to bound the float64 temporaries of a long table


class Rope:
    """Turns queries and keys in place by their positions. The table is float32 [positions, 2, P]."""

    def __init__(self, backend: Backend, rotation: Rotation, positions: int) -> None:
        self.backend = backend
        self.cos_sin = backend.upload(rope_table(rotation, positions), "float32")

    def __call__(self, x_TNH: Array, position_T: Array) -> None:
        self.backend.rope(x_TNH, self.cos_sin, position_T)


def rope_table(rotation: Rotation, positions: int) -> np.ndarray:
    """float32 [positions, 2, P]: cos and sin of position x frequency, times the magnitude.

    Frequencies and angles are rounded to float32 as in the implementations that models are trained with: at position
    p an angle is off by up to p x 2^-24 either way, and sharing that error keeps logits closer than being exact.
    """
    frequency_P = np.array(rotation.frequency_P, np.float32)
    table = np.empty((positions, 2, len(frequency_P)), np.float32)
    for start in range(0, positions, _CHUNK):
        position_c = np.arange(start, min(start + _CHUNK, positions), dtype=np.float32)
        angle_cP = (position_c[:, None] * frequency_P).astype(np.float64)
        table[start : start + _CHUNK, 0] = np.cos(angle_cP) * rotation.magnitude
        table[start : start + _CHUNK, 1] = np.sin(angle_cP) * rotation.magnitude
    return table
