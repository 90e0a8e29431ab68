"""Every rewrite of a recorded step computes the bits of the sequence that it replaces, fires where it should, and does
not where what it would leave out is still wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from native_ops import runs_here
from recorded_model import BLOCK, LIMITS, RecordedModel, kinds, record

from octavo.ops.backend import Batch
from octavo.ops.conformance_cases import raw_weight
from octavo.ops.native import rewrite as rules
from octavo.ops.native.abi import KIND_BF16, KIND_CODES, OpKind
from octavo.ops.native.arrays import Rows
from octavo.ops.native.backend import NativeBackend
from octavo.ops.native.cache import NativeKV
from octavo.ops.native.program import Instruction
from octavo.ops.native.rewrite import rewrite
from octavo.ops.native.weights import PackedWeight

MODELS = (
    "llama",  # bf16
    "llama-biased",  # float16, biases, a tied head
    "llama-yarn",  # float32
    "mistral",  # a sliding window
    "qwen2",  # biases of queries, keys and values
    "qwen3",  # norms of queries and keys
    "llama-q4_1",
    "llama-q4_k",  # merged weights of two packed forms
    "llama-mixed",  # merged weights that want their input in two or three forms
)
RULES = (
    rules._one_activation,
    rules._norm_and_activation,
    rules._gate_and_activation,
    rules._residual,
    rules._rope_and_store,
)

FORM = {KIND_CODES: OpKind.QUANTIZE, KIND_BF16: OpKind.NARROW}
FUSED = {
    (OpKind.RMS_NORM, OpKind.QUANTIZE): OpKind.NORM_QUANTIZE,
    (OpKind.RMS_NORM, OpKind.NARROW): OpKind.NORM_NARROW,
    (OpKind.SILU_MUL, OpKind.QUANTIZE): OpKind.SILU_QUANTIZE,
    (OpKind.SILU_MUL, OpKind.NARROW): OpKind.SILU_NARROW,
}


def unchanged(instructions: list[Instruction], result: int) -> list[Instruction]:
    return instructions


@pytest.fixture(scope="module", params=["avx512-bf16", "avx2-int8"])
def backend(request: pytest.FixtureRequest) -> NativeBackend:
    isa, kv_dtype = request.param.split("-")
    if not runs_here(isa):
        pytest.skip(f"this CPU has no {isa}")
    return NativeBackend(threads=2, kv_dtype=kv_dtype, isa=isa)


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, backend: NativeBackend, tiny_model: Callable[[str], Path]) -> RecordedModel:
    return RecordedModel(tiny_model(request.param), backend)


def test_each_rewrite_computes_the_same_bits(model: RecordedModel) -> None:
    """Each rule alone, and all of them: logits and caches, from buffers full of NaN."""
    logits, caches = model.outcome(unchanged)
    assert all(np.isfinite(logits_TV).all() and np.ptp(logits_TV) > 1 for logits_TV in logits)
    for fuse in (rewrite, *(partial(rules._apply, rule) for rule in RULES)):
        fused_logits, fused_caches = model.outcome(fuse)
        for got, expected in zip(fused_logits + fused_caches, logits + caches, strict=True):
            assert got.tobytes() == expected.tobytes()


def test_no_op_reads_what_no_op_has_written(model: RecordedModel) -> None:
    for program in (model.instructions, rewrite(model.instructions, model.result.buffer)):
        written: set[int] = set()
        for instruction in program:
            assert written.issuperset(instruction.reads)
            written.update(instruction.writes)
        assert model.result.buffer in written


def product(weight: PackedWeight, before: OpKind | None = None) -> list[OpKind]:
    """The ops of a linear whose input an op `before` makes: each form of the input once, and in one op with `before`
    where nobody wants it in another form."""
    forms = [FORM.get(segment.struct.kind) for segment in weight.segments]
    ops = []
    for form, same in groupby(forms):
        ops += [form] * (form is not None) + [OpKind.LINEAR] * len(list(same))
    if before is None:
        return ops
    return [FUSED[before, forms[0]], *ops[1:]] if forms[0] is not None and len(set(forms)) == 1 else [before, *ops]


def test_rules_fire_where_they_should(model: RecordedModel) -> None:
    """The whole program: norms, gates, residuals, rotations and stores have no op of their own where they need none."""
    llama = model.model
    expected = [OpKind.EMBED]
    for block in llama.blocks:
        expected += product(block.attention.qkv.weight, OpKind.RMS_NORM)
        expected += [OpKind.ROPE_STORE, OpKind.ATTENTION, OpKind.ATTENTION_JOIN]
        expected += product(block.attention.out.weight)
        expected += product(block.mlp.gate_up.weight, OpKind.RMS_NORM) + product(block.mlp.down.weight, OpKind.SILU_MUL)
    expected += [OpKind.GATHER, *product(llama.head.weight, OpKind.RMS_NORM)]
    assert kinds(rewrite(model.instructions, model.result.buffer)) == expected


def test_the_models_differ_enough(tiny_model: Callable[[str], Path]) -> None:
    """Among their programs are all ops, fused and not, and norms within a fused op."""
    backend = NativeBackend()
    programs = [RecordedModel(tiny_model(name), backend) for name in MODELS]
    fused = [op for model in programs for op in rewrite(model.instructions, model.result.buffer)]
    assert set(kinds(fused)) >= {*FORM.values(), *FUSED.values(), *(before for before, _ in FUSED), OpKind.ROPE_STORE}
    assert {bool(op.op.vector_2) for op in fused if op.op.kind == OpKind.ROPE_STORE} == {True, False}
    assert {bool(op.op.vector) for op in fused if op.op.kind == OpKind.LINEAR and op.op.y.data} == {True, False}


class Parts:
    """Buffers and weights for programs made by hand."""

    def __init__(self, backend: NativeBackend, batch: Batch) -> None:
        self.backend, self.batch = backend, batch
        self.x, self.y, self.z, self.stream = (
            backend.rows(backend.empty((LIMITS.tokens, 32)), batch.tokens) for _ in range(4)
        )
        self.wide = backend.rows(backend.empty((LIMITS.tokens, 64)), batch.tokens)
        self.scale = np.ones(32, np.float32)
        self.square, self.half = (self.matrix("bf16", rows) for rows in (32, 16))
        self.kv = backend.allocate_kv(2, BLOCK, 1, 32)
        self.tables = [backend.empty((64, 2, 16)) for _ in range(2)]

    def matrix(self, format: str, rows: int) -> PackedWeight:
        return self.backend.pack([raw_weight(np.ones((rows, 32), np.float32), format)])

    def draws(self, x_TD: Rows) -> Rows:
        return self.backend.rows(x_TD, self.batch.logit_S.shape[0])


def norm_read_again(p: Parts, disturbed: bool) -> Rows:
    p.backend.rms_norm(p.x, p.scale, 1e-5, p.y)
    p.backend.linear(p.y, p.square, p.z)
    if disturbed:
        p.backend.add(p.y, p.z, p.z)
    return p.z


def norm_is_the_result(p: Parts, disturbed: bool) -> Rows:
    p.backend.rms_norm(p.x, p.scale, 1e-5, p.y)
    p.backend.linear(p.y, p.square, p.z)
    return p.y if disturbed else p.z


def norm_wanted_in_two_forms(p: Parts, disturbed: bool) -> Rows:
    p.backend.rms_norm(p.x, p.scale, 1e-5, p.y)
    p.backend.linear(p.y, p.square, p.z)
    if disturbed:
        p.backend.linear(p.y, p.matrix("q8_0", 32), p.stream)
    return p.z


def some_columns_of_the_norm_written_anew(p: Parts, disturbed: bool) -> Rows:
    p.backend.rms_norm(p.x, p.scale, 1e-5, p.y)
    p.backend.linear(p.y, p.square, p.z)
    p.backend.linear(p.z, p.half, p.backend.split(p.y, (16, 16))[0])
    return p.y if disturbed else p.z


def some_rows_of_the_norm_written_anew(p: Parts, disturbed: bool) -> Rows:
    p.backend.rms_norm(p.x, p.scale, 1e-5, p.y)
    p.backend.linear(p.y, p.square, p.z)
    p.backend.gather(p.z, p.batch.logit_S, p.draws(p.y))
    return p.y if disturbed else p.z


def norm_of_more_rows(p: Parts, disturbed: bool) -> Rows:
    p.backend.rms_norm(p.x if disturbed else p.draws(p.x), p.scale, 1e-5, p.y if disturbed else p.draws(p.y))
    p.backend.linear(p.draws(p.y), p.square, p.draws(p.z))
    return p.draws(p.z)


def gate_read_again(p: Parts, disturbed: bool) -> Rows:
    p.backend.silu_mul(p.wide, p.y)
    p.backend.linear(p.y, p.square, p.z)
    if disturbed:
        p.backend.add(p.y, p.z, p.z)
    return p.z


def product_read_again(p: Parts, disturbed: bool) -> Rows:
    p.backend.linear(p.x, p.square, p.y)
    p.backend.add(p.stream, p.y, p.stream)
    if disturbed:
        p.backend.add(p.z, p.y, p.z)
    return p.stream


def product_is_the_result(p: Parts, disturbed: bool) -> Rows:
    p.backend.linear(p.x, p.square, p.y)
    p.backend.add(p.stream, p.y, p.stream)
    return p.y if disturbed else p.stream


def product_of_the_stream_itself(p: Parts, disturbed: bool) -> Rows:
    """Float32 rows are multiplied where they stand."""
    p.backend.linear(p.stream if disturbed else p.x, p.matrix("f32", 32), p.y)
    p.backend.add(p.stream, p.y, p.stream)
    return p.stream


def product_added_to_itself(p: Parts, disturbed: bool) -> Rows:
    p.backend.linear(p.x, p.square, p.y)
    p.backend.add(p.y if disturbed else p.z, p.y, p.stream)
    return p.stream


def half_a_product(p: Parts, disturbed: bool) -> Rows:
    halves = p.backend.split(p.y, (16, 16))
    p.backend.linear(p.x, p.half if disturbed else p.square, halves[0] if disturbed else p.y)
    p.backend.add(p.stream, p.y, p.stream)
    return p.stream


def two_rotations(p: Parts, disturbed: bool) -> Rows:
    p.backend.rope(p.backend.heads(p.x, 1), p.tables[0], p.batch.position_T)
    p.backend.rope(p.backend.heads(p.y, 1), p.tables[disturbed], p.batch.position_T)
    p.backend.store_kv(p.backend.heads(p.y, 1), p.backend.heads(p.z, 1), p.kv, p.batch.slot_T)
    return p.x


def other_keys_stored(p: Parts, disturbed: bool) -> Rows:
    p.backend.rope(p.backend.heads(p.x, 1), p.tables[0], p.batch.position_T)
    p.backend.rope(p.backend.heads(p.y, 1), p.tables[0], p.batch.position_T)
    keys = p.backend.heads(p.stream if disturbed else p.y, 1)
    p.backend.store_kv(keys, p.backend.heads(p.z, 1), p.kv, p.batch.slot_T)
    return p.x


@pytest.mark.parametrize(
    "build",
    [
        norm_read_again,
        norm_is_the_result,
        norm_wanted_in_two_forms,
        some_columns_of_the_norm_written_anew,
        some_rows_of_the_norm_written_anew,
        norm_of_more_rows,
        gate_read_again,
        product_read_again,
        product_is_the_result,
        product_of_the_stream_itself,
        product_added_to_itself,
        half_a_product,
        two_rotations,
        other_keys_stored,
    ],
)
@pytest.mark.parametrize("disturbed", [False, True])
def test_rules_do_not_fire_where_something_is_still_wanted(
    backend: NativeBackend, build: Callable[[Parts, bool], Rows], disturbed: bool
) -> None:
    """Nothing is fused in the disturbed program; without the disturbance something is."""
    program, result = record(backend, lambda batch, _: build(Parts(backend, batch), disturbed), [])
    fused = rewrite(program, result.buffer)
    assert (kinds(fused) == kinds(program)) == disturbed


@pytest.mark.parametrize("eps", [1e-5, 1e-6])
def test_norms_of_heads_are_fused_when_they_are_alike(backend: NativeBackend, eps: float) -> None:
    def build(batch: Batch, _: list[NativeKV]) -> Rows:
        p = Parts(backend, batch)
        x, y, z = (backend.heads(rows, 1) for rows in (p.x, p.y, p.z))
        backend.rms_norm(x, p.scale, 1e-5, x)
        backend.rms_norm(y, p.scale, eps, y)
        backend.rope(x, p.tables[0], batch.position_T)
        backend.rope(y, p.tables[0], batch.position_T)
        backend.store_kv(y, z, p.kv, batch.slot_T)
        return x

    program, result = record(backend, build, [])
    norms = [OpKind.RMS_NORM] * 2 if eps != 1e-5 else []
    assert kinds(rewrite(program, result.buffer)) == [*norms, OpKind.ROPE_STORE]
