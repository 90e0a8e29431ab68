"""Does a backend compute what the reference says? Runs every case on the backend and on the float64 reference and
compares. `octavo doctor` shows the outcome on the user's machine; tests/ops runs the same cases one by one.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from octavo.ops.backend import Backend
from octavo.ops.conformance_cases import CASES, Case
from octavo.ops.reference.backend import ReferenceBackend

# By activation dtype: the largest error allowed, as a share of the largest value of the reference's result.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


@dataclass(frozen=True, slots=True)
class Conformance:
    """The outcome of one case. `max_error` is relative to the largest value expected; inf for NaN or a wrong shape."""

    op: str
    shape: str
    ok: bool
    max_error: float
    tolerance: float


def run_conformance(backend: Backend) -> list[Conformance]:
    """Every case on `backend`; takes well under a second. An error that an op raises is the caller's to catch."""
    return [check_case(case, backend) for case in CASES]


def check_case(case: Case, backend: Backend) -> Conformance:
    expected = _outcome(case, ReferenceBackend("float64"))
    got = _outcome(case, backend)
    tolerance = TOLERANCE[backend.dtype]
    error = float("inf")
    if got.shape == expected.shape and np.all(np.isfinite(got)):
        largest = float(np.abs(expected).max(initial=0.0))
        error = float(np.abs(got - expected).max(initial=0.0)) / (largest or 1.0)
    return Conformance(case.op, case.shape, error <= tolerance, error, tolerance)


def _outcome(case: Case, backend: Backend) -> np.ndarray:
    """The case's result as float64. Both backends see the same random inputs."""
    rng = np.random.default_rng(zlib.crc32(f"{case.op} {case.shape}".encode()))
    return np.asarray(case.run(backend, rng), np.float64)
