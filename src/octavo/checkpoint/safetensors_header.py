"""The header of one safetensors file: parsed and checked strictly, so that nothing later can read beyond the file.

The `safetensors` package itself is not used for this: with numpy it copies every tensor and knows no bfloat16.
Source: the format section of the safetensors README. Without numpy.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, TypeGuard

from octavo.checkpoint.mapped import MappedFile
from octavo.errors import CheckpointError

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000  # the format's own limit
MAX_DIMS = 16

DTYPE_BITS = {
    **dict.fromkeys(("F4", "F4_E2M1"), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor: its safetensors dtype, row-major shape, and where it lies, counted from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


def read_header(file: MappedFile) -> dict[str, Entry]:
    """All tensors of `file`. CheckpointError, naming file and tensor, for anything that breaks the format:
    the tensors must cover the file's data exactly, without holes and overlaps."""
    if file.size < LENGTH_BYTES:
        raise CheckpointError(f"{file.path}: {file.size} bytes are no safetensors file")
    length = int.from_bytes(file.bytes[:LENGTH_BYTES], "little")
    data_start = LENGTH_BYTES + length
    if length > MAX_HEADER_BYTES:
        raise CheckpointError(f"{file.path}: no safetensors file (header of {length} bytes, limit {MAX_HEADER_BYTES})")
    if data_start > file.size:
        raise CheckpointError(f"{file.path}: truncated: {file.size} bytes, the header alone needs {data_start}")
    header = _parse(file, file.bytes[LENGTH_BYTES:data_start])
    header.pop("__metadata__", None)
    entries = {name: _entry(file, name, value, data_start) for name, value in header.items()}
    _check_cover(file, entries, data_start)
    return entries


def _parse(file: MappedFile, text: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key appears twice")
        return found

    try:
        header = json.loads(text.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file.path}: broken safetensors header: {error}") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{file.path}: broken safetensors header: not an object")
    return header


def _entry(file: MappedFile, name: str, value: Any, data_start: int) -> Entry:
    fields = value if isinstance(value, dict) else {}
    dtype, shape, offsets = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
    if (
        fields.keys() != {"dtype", "shape", "data_offsets"}
        or not isinstance(dtype, str)
        or not _is_counts(shape)
        or not _is_counts(offsets)
        or len(shape) > MAX_DIMS
        or len(offsets) != 2
    ):
        raise CheckpointError(f"{file.path}: tensor '{name}' has a malformed header entry")
    if dtype not in DTYPE_BITS:
        raise CheckpointError(f"{file.path}: tensor '{name}' has the unknown dtype {dtype[:32]!r}")
    start, end = offsets
    bits = math.prod(shape) * DTYPE_BITS[dtype]
    if bits != (end - start) * 8:
        raise CheckpointError(
            f"{file.path}: tensor '{name}' of dtype {dtype} and shape {shape} does not fill bytes {start} to {end}"
        )
    return Entry(dtype, tuple(shape), data_start + start, end - start)


def _is_counts(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 2**63 for v in values)


def _check_cover(file: MappedFile, entries: dict[str, Entry], data_start: int) -> None:
    position = data_start
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].offset, item[1].nbytes)):
        if entry.offset + entry.nbytes > file.size:
            raise CheckpointError(
                f"{file.path}: tensor '{name}' ends at byte {entry.offset + entry.nbytes}, but the file has "
                f"{file.size}: it is truncated, fetch it again"
            )
        if entry.offset != position:
            kind = "overlaps another" if entry.offset < position else "leaves a hole before it"
            raise CheckpointError(f"{file.path}: tensor '{name}' {kind} (starts at byte {entry.offset})")
        position += entry.nbytes
    if position != file.size:
        raise CheckpointError(f"{file.path}: {file.size - position} bytes after the last tensor belong to none")
