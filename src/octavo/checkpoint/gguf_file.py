"""Reader of the GGUF container: metadata and tensor table of one file, checked against the file's size.

It knows the container only; what the metadata means for a model is `gguf.py`'s business, and tokenizers are
`text`'s. Without numpy, so that the server front end may read vocabularies with it.
Source: the GGUF specification, ggml/docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.checkpoint.gguf_values import HeaderCursor
from octavo.checkpoint.mapped import MappedFile
from octavo.errors import CheckpointError, UnsupportedModel
from octavo.quant.formats import GGML_FORMATS, Format

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMS = 4  # GGML_MAX_DIMS
MIN_ENTRY_BYTES = 8 + 4 + 1  # key length, value type, the smallest value
MIN_TENSOR_BYTES = 8 + 4 + 4 + 8  # name length, dimension count, type, offset


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies. `shape` is row-major with rows first (GGUF stores dimensions the other way round);
    `offset` counts from the start of the file."""

    name: str
    format: Format
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class GGUFFile:
    """An open GGUF file. `metadata` maps keys to int, float, bool, str or (nested) lists of them."""

    def __init__(self, file: MappedFile, metadata: dict[str, Any], tensors: dict[str, TensorInfo]) -> None:
        self.path = file.path
        self.metadata = metadata
        self.tensors = tensors
        self._file = file

    @classmethod
    def open(cls, path: str | Path) -> GGUFFile:
        """Read the header. CheckpointError (naming file, place and fault) for anything malformed or truncated,
        UnsupportedModel for versions, tensor types and split files that Octavo does not read."""
        file = MappedFile(Path(path))
        try:
            metadata, tensors = _read_header(file)
        except BaseException:
            file.close()
            raise
        return cls(file, metadata, tensors)

    def view(self, tensor: TensorInfo) -> memoryview:
        """The bytes of a tensor, without a copy."""
        return self._file.view(tensor.offset, tensor.nbytes)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def gguf_in(directory: Path) -> Path | None:
    """The GGUF file that stands for `directory`: its only one, None when it holds none or safetensors, which come
    first. CheckpointError when there are several."""
    if any(directory.glob("*.safetensors*")):
        return None
    found = sorted(directory.glob("*.gguf"))
    if len(found) > 1:
        names = ", ".join(path.name for path in found[:8])
        raise CheckpointError(f"{directory}: holds {len(found)} GGUF files; name one of them: {names}")
    return found[0] if found else None


def _read_header(file: MappedFile) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
    cursor = HeaderCursor(file)
    if file.bytes[:4] != MAGIC:
        raise CheckpointError(f"{file.path}: not a GGUF file (it starts with {file.bytes[:4]!r})")
    cursor.position = len(MAGIC)
    version = cursor.number("I", "version")
    if version not in VERSIONS:
        kind = "big-endian GGUF" if version & 0xFFFF == 0 else f"GGUF version {version}"
        raise UnsupportedModel(f"{file.path}: {kind}; Octavo reads little-endian versions 2 and 3. Convert it again.")
    tensor_count = cursor.count("tensor count", 0)
    entry_count = cursor.count("metadata count", MIN_ENTRY_BYTES)
    metadata: dict[str, Any] = {}
    for _ in range(entry_count):
        key = cursor.string("metadata key")
        if key in metadata:
            raise cursor.fault(f"metadata key {key!r} appears twice")
        metadata[key] = cursor.value(key)
    _check_split(file.path, metadata)
    cursor.check_count("tensor count", tensor_count, MIN_TENSOR_BYTES)
    return metadata, _read_tensors(cursor, tensor_count, _alignment(cursor, metadata))


def _check_split(path: Path, metadata: dict[str, Any]) -> None:
    parts = metadata.get("split.count", 1)
    if isinstance(parts, int) and parts > 1:
        raise UnsupportedModel(
            f"{path}: one of {parts} parts of a split GGUF, which Octavo does not read yet. "
            "Merge them into one file first (llama-gguf-split --merge)."
        )


def _alignment(cursor: HeaderCursor, metadata: dict[str, Any]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(value) is not int or value < 1 or value & (value - 1):
        raise cursor.fault(f"general.alignment must be a power of two, got {value!r}")
    return value


def _read_tensors(cursor: HeaderCursor, count: int, alignment: int) -> dict[str, TensorInfo]:
    entries = [_read_tensor(cursor) for _ in range(count)]
    data_start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for name, form, shape, offset in entries:
        try:
            nbytes = math.prod(shape[:-1]) * form.row_bytes(shape[-1] if shape else 1)
        except ValueError as error:
            raise cursor.fault(f"tensor {name!r}: {error}") from None
        end = data_start + offset + nbytes
        if name in tensors:
            raise cursor.fault(f"tensor {name!r} appears twice")
        if offset % alignment:
            raise cursor.fault(f"tensor {name!r} starts at {offset}, no multiple of the alignment {alignment}")
        if end > cursor.size:
            raise cursor.fault(
                f"tensor {name!r} ends at byte {end}, but the file has {cursor.size}: it is truncated, fetch it again"
            )
        tensors[name] = TensorInfo(name, form, shape, data_start + offset, nbytes)
    _check_overlaps(cursor, tensors)
    return tensors


def _read_tensor(cursor: HeaderCursor) -> tuple[str, Format, tuple[int, ...], int]:
    """(name, format, shape, offset from the start of the data section)"""
    name = cursor.string("tensor name")
    dims = cursor.number("I", f"dimension count of tensor {name!r}")
    if dims > MAX_DIMS:
        raise cursor.fault(f"tensor {name!r} has {dims} dimensions, the limit is {MAX_DIMS}")
    shape = tuple(cursor.number("Q", f"dimensions of tensor {name!r}") for _ in range(dims))[::-1]
    if 0 in shape:
        raise cursor.fault(f"tensor {name!r} has an empty dimension: {list(shape)}")
    ggml_type = cursor.number("I", f"type of tensor {name!r}")
    form = GGML_FORMATS.get(ggml_type)
    if form is None:
        raise UnsupportedModel(f"{cursor.path}: tensor {name!r} has GGML type {ggml_type}, which Octavo does not read")
    return name, form, shape, cursor.number("Q", f"offset of tensor {name!r}")


def _check_overlaps(cursor: HeaderCursor, tensors: dict[str, TensorInfo]) -> None:
    previous: TensorInfo | None = None
    for tensor in sorted(tensors.values(), key=lambda t: t.offset):
        if previous is not None and tensor.offset < previous.offset + previous.nbytes:
            raise cursor.fault(f"tensors {previous.name!r} and {tensor.name!r} overlap")
        previous = tensor
