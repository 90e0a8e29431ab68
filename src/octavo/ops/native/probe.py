"""What the native library finds on this machine: instruction set levels, CPU features, and measured speeds. For
`octavo doctor`; nothing that serves depends on it.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass

import numpy as np

from octavo.errors import ConfigError
from octavo.ops.native import abi
from octavo.ops.native.library import load_library
from octavo.ops.native.memory import huge_memory

READ_BYTES = 256 << 20  # beyond the caches of all but the largest servers
READ_ROW = 1 << 20
ROUNDS = 3  # the best counts: others use the machine too
PEAK_S = 0.02  # of one round of dot products
LANES = 16


@dataclass(frozen=True, slots=True)
class IsaLevel:
    """An instruction set level of this build, and the CPU features that it lacks here ("": it runs)."""

    name: str
    lacks: str


@dataclass(frozen=True, slots=True)
class Speed:
    """Read bandwidth in GB/s (1e9 bytes), peaks in 1e9 operations per second (an addition and a product are two)."""

    threads: int
    read: float
    int8: float
    bf16: float


def isa_levels() -> list[IsaLevel]:
    """The best first. ConfigError without the native library."""
    library = load_library()
    levels: list[IsaLevel] = []
    while (name := library.octavo_isa_name(len(levels))) is not None:
        levels.append(IsaLevel(name.decode(), library.octavo_isa_lacks(len(levels)).decode()))
    return levels


def cpu_features() -> str:
    """Names with blanks between, of those that the library's levels ask for. ConfigError without the native library."""
    features: bytes = load_library().octavo_cpu_features()
    return features.decode()


def measure_speed(threads: int, isa: str | None = None) -> Speed:
    """About half a second. ConfigError without the native library; MemoryError when 256 MiB cannot be had."""
    library = load_library()
    team = library.octavo_team_create(threads, isa.encode() if isa else None)
    if not team:
        raise ConfigError(f"the native library got no {threads} threads for {isa or 'any instruction set'}")
    try:
        return Speed(
            threads,
            _read(library, team),
            _peak(library, team, threads, abi.OpKind.PROBE_INT8, inputs=4),
            _peak(library, team, threads, abi.OpKind.PROBE_BF16, inputs=2),
        )
    finally:
        library.octavo_team_free(team)


def _read(library: ctypes.CDLL, team: int) -> float:
    memory = huge_memory(READ_BYTES)
    memory.fill(1)  # untouched pages would all be one page of zeros
    op = _op(abi.OpKind.PROBE_READ, memory, READ_BYTES // READ_ROW, READ_ROW)
    return READ_BYTES / min(_seconds(library, team, op) for _ in range(ROUNDS)) / 1e9


def _peak(library: ctypes.CDLL, team: int, threads: int, kind: abi.OpKind, inputs: int) -> float:
    operand = np.ones(256, np.uint8)
    op = _op(kind, operand, threads, operand.size)
    op.extra = 1000
    per_round = max(_seconds(library, team, op) for _ in range(2)) / op.extra
    op.extra = max(op.extra, min(10_000_000, int(PEAK_S / per_round)))
    work = threads * op.extra * abi.PROBE_CHAINS * LANES * inputs * 2
    return work / min(_seconds(library, team, op) for _ in range(ROUNDS)) / 1e9


def _op(kind: abi.OpKind, operand: np.ndarray, rows: int, columns: int) -> abi.Op:
    """An op over `rows` rows of bytes; all write their sums to the same kind of row, which nobody reads."""
    out = np.empty((rows, LANES), np.float32)
    op = abi.Op(kind=kind, rows=rows)
    op.x = abi.View(operand.ctypes.data, columns if operand.size > columns else 0, columns, 0)
    op.out = abi.View(out.ctypes.data, LANES, LANES, 0)
    op.keep = (operand, out)  # ctypes holds addresses only
    return op


def _seconds(library: ctypes.CDLL, team: int, op: abi.Op) -> float:
    start = time.perf_counter()
    library.octavo_run(team, ctypes.byref(op), 1, ctypes.byref(abi.Step()))
    return time.perf_counter() - start
