"""Every op of every backend against the float64 reference, over awkward shapes; and that the suite can fail.

A new backend adds a row to BACKENDS.
"""

from collections.abc import Callable

import numpy as np
import pytest

from octavo.ops.backend import Backend
from octavo.ops.conformance import TOLERANCE, check_case, run_conformance
from octavo.ops.conformance_cases import CASES, Case
from octavo.ops.reference.backend import ReferenceBackend

BACKENDS: dict[str, Callable[[], Backend]] = {
    "reference-float32": lambda: ReferenceBackend("float32"),
    "reference-float64": lambda: ReferenceBackend("float64"),
}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    return BACKENDS[request.param]()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.op}: {case.shape}")
def test_conforms(backend: Backend, case: Case) -> None:
    outcome = check_case(case, backend)
    assert outcome.ok, f"error {outcome.max_error:.2g}, allowed {outcome.tolerance:.2g}"


def test_every_op_of_the_protocol_has_a_case() -> None:
    ops = {name for name in vars(Backend) if not name.startswith("_")} - {"name", "dtype"}
    used_by_all = {
        "empty",
        "zeros",
        "upload",
        "download",
        "pack",
        "rows",
        "split",
        "heads",
        "plan_attention",
        "packed_bytes",
        "kv_block_bytes",
        "allocate_kv",
        "read_kv",
    }
    assert ops - used_by_all - {"refuse", "capture"} == {case.op for case in CASES} - {"split and heads"}


def test_faults_are_found() -> None:
    class Faulty(ReferenceBackend):
        def add(self, x_TD: np.ndarray, y_TD: np.ndarray, out_TD: np.ndarray) -> None:
            np.add(x_TD, y_TD, out=out_TD)
            out_TD[0, 0] *= 1 + 10 * TOLERANCE["float32"]

        def silu_mul(self, gate_up_T2F: np.ndarray, out_TF: np.ndarray) -> None:
            out_TF[:] = np.nan

    failed = {outcome.op for outcome in run_conformance(Faulty("float32")) if not outcome.ok}
    assert failed == {"add", "silu_mul", "split and heads"}  # the last doubles its views with `add`
