"""RawWeight: a tensor as it lies in its checkpoint, not yet converted. The currency between checkpoint and ops."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from octavo.quant.formats import FORMATS


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

    @classmethod
    def view(cls, name: str, file: str, format: str, shape: tuple[int, ...], buffer: memoryview) -> RawWeight:
        """A RawWeight over `buffer`, which holds exactly the tensor's bytes; nothing is copied."""
        columns = shape[-1] if shape else 1
        rows = math.prod(shape[:-1])
        data = np.frombuffer(buffer, np.uint8).reshape(rows, FORMATS[format].row_bytes(columns))
        return cls(name, file, format, shape, data)
