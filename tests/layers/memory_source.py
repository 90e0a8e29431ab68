"""A WeightSource over arrays in memory."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np

from octavo.quant.raw import RawWeight


class MemorySource:
    """`tensors` by Hugging Face name, float32."""

    def __init__(self, tensors: dict[str, np.ndarray]) -> None:
        self.tensors = {name: np.ascontiguousarray(values, np.float32) for name, values in tensors.items()}
        self.config: dict[str, Any] = {}

    @property
    def names(self) -> Set[str]:
        return self.tensors.keys()

    @property
    def stored(self) -> list[tuple[str, tuple[int, ...]]]:
        return [("f32", values.shape) for values in self.tensors.values()]

    @property
    def total_bytes(self) -> int:
        return sum(values.nbytes for values in self.tensors.values())

    def tensor(self, name: str) -> RawWeight:
        values = self.tensors[name]
        return RawWeight.view(name, "memory", "f32", values.shape, memoryview(values).cast("B"))

    def close(self) -> None:
        pass
