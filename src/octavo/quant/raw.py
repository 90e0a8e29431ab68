"""RawWeight: a tensor as it lies in its checkpoint, not yet converted. The currency between checkpoint and ops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class RawWeight:
    """A view of checkpoint bytes; nothing is copied until a backend packs it.

    `format` is a key of `quant.formats.FORMATS` (for example "bf16", "f32", "q4_1", "q6_k"). `shape` is the
    logical shape in elements, row-major, rows first (a linear is [out features, in features]). `data` is
    uint8 [rows, bytes per row] over the memory-mapped file (a vector counts as one row). `name` is the
    Hugging Face tensor name, `file` where it lies; both are for messages.
    """

    name: str
    file: str
    format: str
    shape: tuple[int, ...]
    data: np.ndarray
