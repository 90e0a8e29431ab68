"""Where ops go: Immediate runs each at once (tests, doctor), Recording collects those of one forward pass with counts
in place of numbers, Replay runs them with the arrays of a step, in one native call. Fusion is `rewrite.py`'s.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from octavo.ops.backend import Batch, StepLimits
from octavo.ops.native import abi
from octavo.ops.native.arrays import Count, Rows
from octavo.ops.native.library import load_library
from octavo.ops.native.memory import LINE, huge_memory

ACTIVATION_OP = {abi.KIND_CODES: abi.OpKind.QUANTIZE, abi.KIND_BF16: abi.OpKind.NARROW}
STEP_ARRAYS = ("token_T", "position_T", "slot_T", "query_start_R1", "kv_len_R", "table_RW", "logit_S")


@dataclass(slots=True)
class Instruction:
    """One op, with which buffers it reads and writes (by identity), and with what keeps their memory alive."""

    op: abi.Op
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    keep: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class ActivationRows:
    """Rows in the form that a kind of weight wants: int8 with scales (stride in bytes) or bf16 (stride in numbers)."""

    view: abi.View
    buffer: int
    memory: np.ndarray

    @classmethod
    def allocate(cls, kind: int, padded_columns: int, rows: int) -> ActivationRows:
        """See native/activation.h for KIND_CODES; KIND_BF16 are plain rows."""
        if kind == abi.KIND_CODES:
            stride = row_bytes = -(-(padded_columns + padded_columns // 32 * 20) // LINE) * LINE
        else:
            stride, row_bytes = padded_columns, 2 * padded_columns
        memory = np.zeros(max(rows, 1) * row_bytes + LINE, np.uint8)
        memory = memory[-memory.ctypes.data % LINE :]
        return cls(abi.View(memory.ctypes.data, stride, padded_columns, 0), memory.ctypes.data, memory)


class Immediate:
    """Runs every op when it is called. Allocates as it goes: not for serving."""

    def __init__(self, library: ctypes.CDLL, team: int) -> None:
        self._library = library
        self._team = team

    def add(self, instruction: Instruction, arrays: dict[str, Any] | Batch) -> None:
        step = abi.Step()
        if isinstance(arrays, Batch):
            fill_step(step, arrays)
        else:
            for name, array in arrays.items():
                setattr(step, name, array.ctypes.data)
        self._library.octavo_run(self._team, ctypes.byref(instruction.op), 1, ctypes.byref(step))

    def activation(self, kind: int, padded_columns: int, rows: int) -> ActivationRows:
        return ActivationRows.allocate(kind, padded_columns, rows)

    def attention_scratch(self, q_TNH: Rows, batch: Batch) -> np.ndarray:
        longest = int(batch.kv_len_R.max(initial=0))
        return attention_scratch(StepLimits(batch.rows, batch.tokens, 0, longest), q_TNH)


@dataclass(slots=True)
class Recording:
    """Instructions in the order in which the model called them. Buffers between ops are shared by all of one size."""

    limits: StepLimits
    instructions: list[Instruction] = field(default_factory=list)
    _activations: dict[tuple[int, int], ActivationRows] = field(default_factory=dict)
    _scratch: np.ndarray | None = None

    def batch(self) -> Batch:
        """A batch that says how many there are of everything at most, and has no arrays: those are each step's own."""
        draws = Count(self.limits.draws, abi.DRAWS)
        logit_S = Rows(np.empty((0, 0), np.float32), draws, 0)
        tokens = Count(self.limits.tokens, abi.TOKENS)
        return Batch(tokens, self.limits.rows, None, None, None, None, None, None, logit_S)

    def add(self, instruction: Instruction, arrays: dict[str, Any] | Batch) -> None:  # noqa: ARG002 (the step's own)
        self.instructions.append(instruction)

    def activation(self, kind: int, padded_columns: int, rows: int) -> ActivationRows:  # noqa: ARG002 (room for any)
        key = kind, padded_columns
        if key not in self._activations:
            self._activations[key] = ActivationRows.allocate(kind, padded_columns, self.limits.tokens)
        return self._activations[key]

    def attention_scratch(self, q_TNH: Rows, batch: Batch) -> np.ndarray:  # noqa: ARG002 (room for any)
        if self._scratch is None:
            self._scratch = attention_scratch(self.limits, q_TNH)
        return self._scratch


class Replay:
    """A recorded step. Each call runs it with a batch's arrays and returns the logits of its draws."""

    def __init__(self, library: ctypes.CDLL, team: int, instructions: list[Instruction], result: Rows) -> None:
        self._library = library
        self._team = team
        self._ops = (abi.Op * len(instructions))(*(instruction.op for instruction in instructions))
        self._keep = [instruction.keep for instruction in instructions]
        self._step = abi.Step()
        self._result = result

    def __call__(self, batch: Batch) -> Rows:
        fill_step(self._step, batch)
        self._library.octavo_run(self._team, self._ops, len(self._ops), ctypes.byref(self._step))
        return replace(self._result, count=self._step.draws)


def fill_step(step: abi.Step, batch: Batch) -> None:
    step.tokens, step.rows, step.draws = batch.tokens, batch.rows, batch.logit_S.shape[0]
    step.table_width = batch.table_RW.shape[1]
    step.table_stride = batch.table_RW.strides[0] // batch.table_RW.itemsize
    for name in STEP_ARRAYS:
        setattr(step, name, getattr(batch, name).ctypes.data)


def attention_scratch(limits: StepLimits, q_TNH: Rows) -> np.ndarray:
    """Where attention keeps the parts of rows that several workers share."""
    _, heads, head_dim = q_TNH.shape
    tokens = max(limits.tokens, limits.rows)
    size = load_library().octavo_attention_scratch_bytes(tokens, heads, head_dim, limits.length)
    return huge_memory(size)
