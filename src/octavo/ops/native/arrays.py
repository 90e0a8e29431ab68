"""What ops are called with: Rows (a float32 buffer or a view of one) and Count (how many rows, when that differs from
step to step). Both only name memory; the arithmetic is in the native library.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octavo.ops.native.abi import View


class Count(int):
    """A number of rows while a step is recorded: the most it can be, and the symbol (abi.TOKENS, abi.DRAWS) for what it
    is in each step."""

    symbol: int

    def __new__(cls, most: int, symbol: int) -> Count:
        count = super().__new__(cls, most)
        count.symbol = symbol
        return count


@dataclass(frozen=True, slots=True)
class Rows:
    """`count` rows of `memory`, float32 [capacity, columns] with any row stride; with heads, columns = heads x H.

    `buffer` is the same for all views of one buffer.
    """

    memory: np.ndarray
    count: int
    buffer: int
    heads: int = 0

    @classmethod
    def whole(cls, values: np.ndarray) -> Rows:
        """All of a float32 array [rows, columns] or [rows, heads, H] that is contiguous."""
        heads = values.shape[1] if values.ndim == 3 else 0
        memory = values.reshape(len(values), -1)
        return cls(memory, len(values), values.ctypes.data, heads)

    @property
    def columns(self) -> int:
        return int(self.memory.shape[1])

    @property
    def shape(self) -> tuple[int, ...]:
        if self.heads:
            return self.count, self.heads, self.columns // self.heads
        return self.count, self.columns

    @property
    def view(self) -> View:
        return View(self.memory.ctypes.data, self.memory.strides[0] // self.memory.itemsize, self.columns, self.heads)

    def numpy(self) -> np.ndarray:
        """The rows as a numpy view."""
        rows: np.ndarray = self.memory[: self.count]
        return rows.reshape(self.shape) if self.heads else rows


def symbol_of(count: int) -> int:
    """What an op's `rows` field holds for a count."""
    return count.symbol if isinstance(count, Count) else count
