"""Decoding of any stored tensor to numpy floats: what a backend without kernels for a format falls back on.

It works through bounded chunks, so it needs the result and a few MB, never a second copy of a tensor.
Block decoding itself is the `gguf` package's; it is imported on the first quantised tensor.
"""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

from octavo.quant.formats import FORMATS, Format
from octavo.quant.raw import RawWeight

# Elements decoded at a time: small enough that a chunk and its temporaries stay in a CPU's cache.
CHUNK_ELEMENTS = 1 << 16

PLAIN_DTYPES: dict[str, np.dtype] = {
    "f64": np.dtype("<f8"),
    "f32": np.dtype("<f4"),
    "f16": np.dtype("<f2"),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}


def dequantize(raw: RawWeight, dtype: DTypeLike = np.float32, out: np.ndarray | None = None) -> np.ndarray:
    """The values of `raw` as an array of `raw.shape` and `dtype`, a float type.

    `out`, when given, receives them instead, and its dtype counts; it may be a slice of rows of a larger array.
    ValueError when its shape is not `raw.shape` or its memory cannot be seen as rows.
    """
    if out is None:
        out = np.empty(raw.shape, dtype)
    elif out.shape != raw.shape:
        raise ValueError(f"{raw.name}: out has shape {out.shape}, the tensor {raw.shape}")
    form = FORMATS[raw.format]
    out_rows = out.reshape(raw.data.shape[0], raw.shape[-1] if raw.shape else 1)
    if out.size and not np.may_share_memory(out_rows, out):
        raise ValueError(f"{raw.name}: out cannot be seen as rows without a copy")
    for part, columns in _chunks(raw.data, form):
        source = raw.data[part, columns.start * form.block_bytes : columns.stop * form.block_bytes]
        target = out_rows[part, columns.start * form.block : columns.stop * form.block]
        values = source.view(PLAIN_DTYPES[form.name]) if form.plain else _decode(source, form)
        np.copyto(target, values, casting="same_kind")
    return out


def _chunks(data: np.ndarray, form: Format) -> Iterator[tuple[slice, range]]:
    """(rows, blocks of the row) of consecutive pieces of about CHUNK_ELEMENTS, covering `data`."""
    rows, row_bytes = data.shape
    blocks = row_bytes // form.block_bytes
    step_blocks = max(1, min(blocks, CHUNK_ELEMENTS // form.block))
    step_rows = max(1, CHUNK_ELEMENTS // (step_blocks * form.block))
    for row in range(0, rows, step_rows):
        for block in range(0, blocks, step_blocks):
            yield slice(row, row + step_rows), range(block, min(block + step_blocks, blocks))


def _decode(source: np.ndarray, form: Format) -> np.ndarray:
    """float32 values of uint8 rows of whole blocks."""
    import gguf.constants
    import gguf.quants

    # One long row: the package works through rows in groups of 16, which costs more than it saves here.
    flat = np.ascontiguousarray(source).reshape(1, -1)
    with np.errstate(over="ignore", invalid="ignore"):  # a scale of infinity is the file's own business
        values = gguf.quants.dequantize(flat, gguf.constants.GGMLQuantizationType(form.ggml))
    return values.reshape(source.shape[0], -1)
