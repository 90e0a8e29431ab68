"""GGUFSource: a GGUF file as a WeightSource. Names and config come from `gguf_names.py` and `gguf_config.py`;
this file hands out tensors and undoes the row order that "llama" files have in their q and k projections.
"""

from __future__ import annotations

import re
from collections.abc import Set
from pathlib import Path
from typing import Any

import numpy as np

from octavo.checkpoint.gguf_config import ROPE_FACTORS, hugging_face_config
from octavo.checkpoint.gguf_file import GGUFFile, TensorInfo
from octavo.checkpoint.gguf_names import hugging_face_name
from octavo.errors import CheckpointError
from octavo.quant.raw import RawWeight

ROTATED = re.compile(r"model\.layers\.\d+\.self_attn\.([qk])_proj\.(weight|bias)")


class GGUFSource:
    """WeightSource over one GGUF file of a supported architecture."""

    def __init__(self, path: str | Path) -> None:
        """CheckpointError for a malformed file, UnsupportedModel for one that Octavo does not serve."""
        self._file = GGUFFile.open(path)
        try:
            self._config = hugging_face_config(self._file)
            self._tensors = _by_hugging_face_name(self._file)
        except BaseException:
            self._file.close()
            raise
        self._interleaved = self._file.metadata["general.architecture"] == "llama"

    @property
    def config(self) -> dict[str, Any]:
        return self._config

    @property
    def names(self) -> Set[str]:
        return self._tensors.keys()

    @property
    def stored(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(tensor.format.name, tensor.shape) for tensor in self._tensors.values()]

    @property
    def total_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._tensors.values())

    def tensor(self, name: str) -> RawWeight:
        """The tensor `name`: a view of the mapped file, except q and k of "llama" files, whose rows are put
        back in order and which therefore are copies. CheckpointError when absent or of an impossible shape."""
        info = self._tensors.get(name)
        if info is None:
            raise CheckpointError(f"{self._file.path}: there is no tensor '{name}'")
        raw = RawWeight.view(name, str(self._file.path), info.format.name, info.shape, self._file.view(info))
        rotated = ROTATED.fullmatch(name) if self._interleaved else None
        if rotated is None:
            return raw
        heads = self._config["num_attention_heads" if rotated[1] == "q" else "num_key_value_heads"]
        return _half_split(raw, heads, self._config["head_dim"])

    def close(self) -> None:
        self._file.close()


def _by_hugging_face_name(file: GGUFFile) -> dict[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    for gguf_name, info in file.tensors.items():
        name = hugging_face_name(gguf_name)
        if name in tensors:
            raise CheckpointError(f"{file.path}: tensors '{tensors[name].name}' and '{gguf_name}' are both '{name}'")
        if gguf_name != ROPE_FACTORS:
            tensors[name] = info
    return tensors


def _half_split(raw: RawWeight, heads: int, head_dim: int) -> RawWeight:
    """Reorder the output features of each head from GGUF's interleaved pairs (x0 y0 x1 y1 ...), which llama.cpp
    rotates, to Hugging Face's halves (x0 x1 ... y0 y1 ...). Whole rows of stored bytes move, so nothing is decoded.
    """
    if raw.shape[:1] != (heads * head_dim,) or head_dim % 2:
        raise CheckpointError(
            f"{raw.file}: tensor '{raw.name}' has shape {list(raw.shape)}; {heads} heads of {head_dim} were expected"
        )
    features = raw.data.reshape(heads, head_dim // 2, 2, -1)
    data = np.ascontiguousarray(features.swapaxes(1, 2)).reshape(raw.data.shape)
    return RawWeight(raw.name, raw.file, raw.format, raw.shape, data)
