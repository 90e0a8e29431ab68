"""Running single ops of the native library on numpy arrays: views, teams of every ISA level, memory with guards."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from octavo.ops.native.abi import TOKENS, Op, OpKind, Step, View
from octavo.ops.native.library import load_library

ISA_LEVELS = ("scalar", "avx2", "avx512")


def runs_here(isa: str) -> bool:
    """Whether this build has the ISA level and this CPU runs it."""
    library = load_library()
    team = library.octavo_team_create(1, isa.encode())
    if team:
        library.octavo_team_free(team)
    return bool(team)


class NativeTeam:
    """A thread team of one ISA level. Ops are named like `OpKind`; arrays must outlive the call, as they do here."""

    def __init__(self, isa: str, threads: int) -> None:
        self.library = load_library()
        self.threads = threads
        self.handle = self.library.octavo_team_create(threads, isa.encode())
        assert self.handle, f"no team of {isa}"

    def run(self, kind: OpKind, rows: int = TOKENS, step: Step | None = None, **fields: object) -> None:
        """One op with the given fields of octavo_op; arrays may be given for views and vectors."""
        op = Op(kind=int(kind), rows=rows)
        for name, value in fields.items():
            if name in ("x", "y", "z", "out"):
                value = value if isinstance(value, View) else view(value)
            elif isinstance(value, np.ndarray):
                value = value.ctypes.data
            setattr(op, name, value)
        self.library.octavo_run(self.handle, ctypes.byref(op), 1, ctypes.byref(step or Step()))

    def close(self) -> None:
        self.library.octavo_team_free(self.handle)


@contextmanager
def native_team(isa: str, threads: int = 2) -> Iterator[NativeTeam]:
    team = NativeTeam(isa, threads)
    try:
        yield team
    finally:
        team.close()


def view(array_TC: np.ndarray, heads: int = 0) -> View:
    """Rows of a 2-d array, which may be a column slice of a wider one. The stride is in elements."""
    assert array_TC.strides[1] == array_TC.itemsize
    return View(array_TC.ctypes.data, array_TC.strides[0] // array_TC.itemsize, array_TC.shape[1], heads)


def step_of(tokens: int = 0, **arrays: np.ndarray) -> Step:
    """A step whose arrays (int32, kept alive by the caller) have the names of octavo_step."""
    draws = len(arrays.get("logit_S", ()))
    step = Step(tokens=tokens, draws=draws)
    for name, array in arrays.items():
        assert array.dtype == np.int32
        setattr(step, name, array.ctypes.data)
    return step


def strided(rows: int, columns: int, gap: int, dtype: type = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """A [rows, columns] slice of a wider array, and that array, filled with a byte that no op should touch."""
    whole = np.full((rows, columns + gap), 0, dtype)
    whole.view(np.uint8)[...] = 0xA5
    return whole[:, :columns], whole
