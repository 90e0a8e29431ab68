"""WeightSource: the door behind which containers and quantization formats stay. Layers pull tensors by name."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Protocol

from octavo.quant.raw import RawWeight


class WeightSource(Protocol):
    """A readable checkpoint. Names and config keys are Hugging Face's, whatever the container."""

    @property
    def config(self) -> dict[str, Any]:
        """The model's `config.json` as a dict; a GGUF file's metadata mapped to the same keys."""

    @property
    def names(self) -> Set[str]:
        """All tensor names present."""

    @property
    def stored(self) -> list[tuple[str, tuple[int, ...]]]:
        """Format (a key of `quant.formats.FORMATS`) and shape of each tensor; from the header alone, without touching
        one. Tensors that `tensor` would refuse count for nothing."""

    @property
    def total_bytes(self) -> int:
        """Bytes of all tensors, for progress bars and the memory plan."""

    def tensor(self, name: str) -> RawWeight:
        """The tensor `name`, a view of the mapped file. CheckpointError (naming tensor and file) when absent."""

    def close(self) -> None:
        """Unmap the files. Views handed out before must not be used afterwards."""
