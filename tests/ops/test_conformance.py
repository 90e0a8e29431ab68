"""Every op of every backend against the float64 reference, over awkward shapes; and that the suite can fail.

A new backend adds a row to BACKENDS.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from octavo.errors import ConfigError
from octavo.ops.backend import Backend
from octavo.ops.conformance import TOLERANCE, check_case, run_conformance
from octavo.ops.conformance_cases import CASES, Case
from octavo.ops.native.backend import NativeBackend
from octavo.ops.reference.backend import ReferenceBackend

BACKENDS: dict[str, Callable[[], Backend]] = {
    "reference-float32": partial(ReferenceBackend, "float32"),
    "reference-float64": partial(ReferenceBackend, "float64"),
} | {
    f"native-{isa}-{kv_dtype}": partial(NativeBackend, threads=2, kv_dtype=kv_dtype, isa=isa)
    for isa in ("scalar", "avx2", "avx512")
    for kv_dtype in ("bf16", "int8")
}

# What the native backend may be off by where it rounds; in its other ops it is as exact as float32.
# Activations of quantised weights are int8, off by 1/254 of the largest of 32; errors of a sum mostly cancel, so its
# own, beside its largest result, stays below two of them. The inputs of all cases are exact in bf16, and so is a bf16
# cache; attention then rounds queries times scale and softmax weights to 8 bits, 2^-9 each. An int8 cache is off by
# 1/254 of the largest of a token's head (a little more, as its scale is rounded too), in keys and in values.
HALF_STEP, BF16_HALF_STEP = 1 / 254, 2**-9
ROUNDED: dict[str, dict[str, float]] = {
    "bf16": {"linear": 2 * HALF_STEP, "attention": 2 * BF16_HALF_STEP},
    "int8": {"linear": 2 * HALF_STEP, "attention": 3 * HALF_STEP}
    | dict.fromkeys(("store_kv", "copy_blocks"), 1.02 * HALF_STEP),
}


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    try:
        backend = BACKENDS[request.param]()
    except ConfigError as error:  # no native library (tests/native fails without it), or not on this CPU
        pytest.skip(str(error))
    return backend


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.op}: {case.shape}")
def test_conforms(backend: Backend, case: Case, request: pytest.FixtureRequest) -> None:
    outcome = check_case(case, backend)
    assert outcome.ok, f"error {outcome.max_error:.2g}, allowed {outcome.tolerance:.2g}"
    if backend.name == "native":
        kv_dtype = request.node.callspec.params["backend"].rpartition("-")[2]
        allowed = ROUNDED[kv_dtype].get(case.op, TOLERANCE["float32"])
        assert outcome.max_error <= allowed, f"error {outcome.max_error:.2g}, allowed {allowed:.2g}"


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
