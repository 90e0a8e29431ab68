"""Packed weights: checkpoint parts stacked along output features, each in the packed form of its format. The packing
itself is the native library's; formats it has none for are dequantised first (see `fallback_reason`).
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from octavo.ops.native import abi
from octavo.ops.native.library import load_library
from octavo.ops.native.memory import Arena
from octavo.quant.dequantize import dequantize
from octavo.quant.formats import FORMATS
from octavo.quant.raw import RawWeight

PANEL_ROWS = 16
FALLBACK = abi.Weight(kind=abi.KIND_CODES, bits=8, group=32, has_min=0, zero=128)
# By the target of --quantize, which applies to matrices of plain formats.
TARGETS = {"q8": FALLBACK, "q4": abi.Weight(kind=abi.KIND_CODES, bits=4, group=32, has_min=1, zero=0)}
ROWS_AT_ONCE = 256  # dequantised together: bounds the float32 copy
SHARED_BYTES = 4 << 20  # of a smaller matrix the threads take longer to start than to pack it


@dataclass(frozen=True, slots=True)
class Segment:
    """Output features first_row .. of a packed weight, in one packed form. `memory` is what `struct.data` points to."""

    struct: abi.Weight
    memory: np.ndarray
    first_row: int


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """[rows, columns]; the segments follow each other along rows."""

    segments: tuple[Segment, ...]
    rows: int
    columns: int


def packing(format: str, quantize: str | None = None) -> abi.Weight:
    """The packed form of a checkpoint format; rows and sizes still to be filled in."""
    if quantize is not None and FORMATS[format].plain:
        return _like(TARGETS[quantize])
    struct = abi.Weight()
    if load_library().octavo_packing_of(FORMATS[format].ggml, ctypes.byref(struct)) == 0:
        return struct
    return packing("f32") if FORMATS[format].plain else _like(FALLBACK)


def has_packing(format: str) -> bool:
    """Whether the library packs the format as it is."""
    return bool(load_library().octavo_packing_of(FORMATS[format].ggml, ctypes.byref(abi.Weight())) == 0)


def fallback_reason(format: str) -> str | None:
    """What becomes of a format that the library does not pack as it is, and why; None for one that it does."""
    if has_packing(format):
        return None
    kept = "float32, the widest there is" if FORMATS[format].plain else "8 bits, which loses next to nothing"
    return f"{format} has no packed form of its own here: its matrices are kept in {kept}, and take more memory"


def packed_bytes(format: str, shape: tuple[int, ...], quantize: str | None = None) -> int:
    """Memory that a tensor of a checkpoint takes once packed."""
    if len(shape) < 2:
        return 4 * int(np.prod(shape, dtype=np.int64))
    struct = packing(format, quantize)
    struct.rows, struct.columns = shape
    return int(load_library().octavo_weight_layout(ctypes.byref(struct)))


def pack_matrix(parts: list[RawWeight], arena: Arena, threads: int, quantize: str | None = None) -> PackedWeight:
    """Stack `parts` along output features. Neighbours of one format share a segment where panels allow it."""
    segments, first_row, columns = [], 0, parts[0].shape[1]
    for group in _groups(parts):
        segments.append(_pack_segment(group, arena, threads, first_row, quantize))
        first_row += sum(part.shape[0] for part in group)
    return PackedWeight(tuple(segments), first_row, columns)


def _groups(parts: list[RawWeight]) -> list[list[RawWeight]]:
    groups: list[list[RawWeight]] = []
    for part in parts:
        if groups and groups[-1][-1].format == part.format and groups[-1][-1].shape[0] % PANEL_ROWS == 0:
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


def _pack_segment(parts: list[RawWeight], arena: Arena, threads: int, first_row: int, quantize: str | None) -> Segment:
    library = load_library()
    struct = packing(parts[0].format, quantize)
    struct.rows, struct.columns = sum(part.shape[0] for part in parts), parts[0].shape[1]
    memory = arena.take(library.octavo_weight_layout(ctypes.byref(struct)))
    struct.data = memory.ctypes.data
    row = 0
    for part in parts:
        _pack_part(struct, part, row, threads, quantize)
        row += part.shape[0]
    return Segment(struct, memory, first_row)


def _pack_part(struct: abi.Weight, part: RawWeight, first_row: int, threads: int, quantize: str | None) -> None:
    """Whole panels per thread, if it is large enough; the library releases the interpreter meanwhile."""
    rows = part.shape[0]
    as_it_is = has_packing(part.format) and (quantize is None or not FORMATS[part.format].plain)
    pack = _pack_rows if as_it_is else _pack_through_floats
    if part.data.nbytes < SHARED_BYTES:
        threads = 1
    share = -(-rows // (threads * ROWS_AT_ONCE)) * ROWS_AT_ONCE
    starts = range(0, rows, share)
    if len(starts) == 1:
        pack(struct, part, first_row, 0, rows)
        return
    with ThreadPoolExecutor(threads) as team:
        for done in [team.submit(pack, struct, part, first_row, start, min(start + share, rows)) for start in starts]:
            done.result()


def _pack_rows(struct: abi.Weight, part: RawWeight, first_row: int, start: int, end: int) -> None:
    data = part.data[start:end]
    assert data.strides[1] == 1
    done = load_library().octavo_pack(
        ctypes.byref(struct),
        FORMATS[part.format].ggml,
        data.ctypes.data,
        data.strides[0],
        first_row + start,
        end - start,
    )
    assert done == 0, f"octavo_packing_of promised a packing of {part.format}"


def _pack_through_floats(struct: abi.Weight, part: RawWeight, first_row: int, start: int, end: int) -> None:
    """Dequantise, then round to the codes of `struct`, or keep the floats where it is of that kind."""
    for at in range(start, end, ROWS_AT_ONCE):
        count = min(ROWS_AT_ONCE, end - at)
        rows = np.empty((count, part.shape[1]), np.float32)
        piece = RawWeight(part.name, part.file, part.format, rows.shape, part.data[at : at + count])
        dequantize(piece, out=rows)
        if struct.kind == abi.KIND_F32:
            whole = RawWeight(part.name, part.file, "f32", rows.shape, rows.view(np.uint8))
            _pack_rows(struct, whole, first_row + at, 0, count)
            continue
        done = load_library().octavo_quantize_rows(ctypes.byref(struct), rows.ctypes.data, first_row + at, count)
        assert done == 0, "rows are rounded to a packing that octavo_quantize_rows does not know"


def _like(struct: abi.Weight) -> abi.Weight:
    return abi.Weight.from_buffer_copy(struct)
