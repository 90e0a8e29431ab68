"""The gather that was moved forward computes the bits of the one at the end, moves over what it should, and stays where
the rows that it would leave out are still wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from native_ops import runs_here
from recorded_model import LIMITS, RecordedModel, kinds, record
from test_rewrite import MODELS, Parts, unchanged

from octavo.ops.native.abi import DRAWS, TOKENS, OpKind
from octavo.ops.native.arrays import Rows
from octavo.ops.native.backend import NativeBackend
from octavo.ops.native.early_gather import ROW_BY_ROW, gather_early
from octavo.ops.native.program import Instruction
from octavo.ops.native.rewrite import rewrite

early = partial(gather_early, draws=LIMITS.draws, tokens=LIMITS.tokens)

DRAWN: dict[str, Callable[[int], np.ndarray]] = {
    "all": np.arange,
    "none": lambda tokens: np.arange(0),
    "the last": lambda tokens: np.array([tokens - 1]),
    "some, some of them twice, in any order": lambda tokens: np.array([tokens - 1, 0, 0, tokens // 2, 0]) % tokens,
}


@pytest.fixture(scope="module", params=["avx512-bf16", "avx2-int8"])
def backend(request: pytest.FixtureRequest) -> NativeBackend:
    isa, kv_dtype = request.param.split("-")
    if not runs_here(isa):
        pytest.skip(f"this CPU has no {isa}")
    return NativeBackend(threads=2, kv_dtype=kv_dtype, isa=isa)


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, backend: NativeBackend, tiny_model: Callable[[str], Path]) -> RecordedModel:
    return RecordedModel(tiny_model(request.param), backend)


def fused_and_early(program: list[Instruction], result: int) -> list[Instruction]:
    return early(rewrite(program, result), result)


@pytest.mark.parametrize("drawn", DRAWN.values(), ids=DRAWN)
def test_it_computes_the_same_bits(model: RecordedModel, drawn: Callable[[int], np.ndarray]) -> None:
    """Logits and caches, in the program as the model called it and in the fused one."""
    logits, caches = model.outcome(unchanged, drawn)
    for change in (early, fused_and_early):
        early_logits, early_caches = model.outcome(change, drawn)
        for got, expected in zip(early_logits + early_caches, logits + caches, strict=True):
            assert got.shape == expected.shape
            assert got.tobytes() == expected.tobytes()


def test_it_moves_in_front_of_all_that_follows_the_last_attention(model: RecordedModel) -> None:
    """From there on the program is as long as before, but for the second gather: of the attention and of the stream."""
    fused = rewrite(model.instructions, model.result.buffer)
    moved = early(fused, model.result.buffer)
    last = max(index for index, kind in enumerate(kinds(fused)) if kind == OpKind.ATTENTION_JOIN) + 1
    rest = [kind for kind in kinds(fused)[last:] if kind != OpKind.GATHER]
    assert kinds(moved) == [*kinds(fused)[:last], OpKind.GATHER, OpKind.GATHER, *rest]
    assert {instruction.op.rows for instruction in moved[last:]} == {DRAWS}
    assert {instruction.op.rows for instruction in fused[last:]} == {TOKENS, DRAWS}


def stream_is_read_again(p: Parts, disturbed: bool) -> Rows:
    p.backend.add(p.x, p.y, p.x)
    p.backend.gather(p.x, p.batch.logit_S, p.draws(p.z))
    if disturbed:
        p.backend.add(p.draws(p.z), p.draws(p.x), p.draws(p.z))
    return p.draws(p.z)


def another_result_is_read_again(p: Parts, disturbed: bool) -> Rows:
    p.backend.rms_norm(p.x, p.scale, 1e-5, p.y)
    p.backend.add(p.stream, p.y, p.stream)
    p.backend.gather(p.stream, p.batch.logit_S, p.draws(p.z))
    if disturbed:
        p.backend.add(p.draws(p.z), p.draws(p.y), p.draws(p.z))
    return p.draws(p.z)


def stream_is_the_result(p: Parts, disturbed: bool) -> Rows:
    p.backend.add(p.x, p.y, p.x)
    p.backend.gather(p.x, p.batch.logit_S, p.draws(p.z))
    return p.x if disturbed else p.draws(p.z)


def tokens_go_on(p: Parts, disturbed: bool) -> Rows:
    p.backend.add(p.x, p.y, p.x)
    p.backend.gather(p.x, p.batch.logit_S, p.draws(p.z))
    if disturbed:
        p.backend.add(p.y, p.y, p.y)
    return p.draws(p.z)


def gathered_over_what_was_read(p: Parts, disturbed: bool) -> Rows:
    p.backend.add(p.x, p.y, p.x)
    p.backend.gather(p.x, p.batch.logit_S, p.draws(p.y if disturbed else p.z))
    return p.draws(p.y if disturbed else p.z)


def two_gathers(p: Parts, disturbed: bool) -> Rows:
    p.backend.add(p.x, p.y, p.x)
    p.backend.gather(p.x, p.batch.logit_S, p.draws(p.z))
    if disturbed:
        p.backend.gather(p.y, p.batch.logit_S, p.draws(p.stream))
    return p.draws(p.z)


def half_of_the_stream(p: Parts, disturbed: bool) -> Rows:
    x, y = (p.backend.split(rows, (16, 16))[0] if disturbed else rows for rows in (p.x, p.y))
    p.backend.add(x, y, x)
    p.backend.gather(p.x, p.batch.logit_S, p.draws(p.z))
    return p.draws(p.z)


def rows_that_know_their_place(p: Parts, disturbed: bool) -> Rows:
    p.backend.add(p.x, p.y, p.x)
    if disturbed:
        p.backend.rope(p.backend.heads(p.x, 1), p.tables[0], p.batch.position_T)
    p.backend.gather(p.x, p.batch.logit_S, p.draws(p.z))
    return p.draws(p.z)


@pytest.mark.parametrize(
    "build",
    [
        stream_is_read_again,
        another_result_is_read_again,
        stream_is_the_result,
        tokens_go_on,
        gathered_over_what_was_read,
        two_gathers,
        half_of_the_stream,
        rows_that_know_their_place,
    ],
)
@pytest.mark.parametrize("disturbed", [False, True])
def test_it_stays_where_rows_are_still_wanted(
    backend: NativeBackend, build: Callable[[Parts, bool], Rows], disturbed: bool
) -> None:
    program, result = record(backend, lambda batch, _: build(Parts(backend, batch), disturbed), [])
    assert (kinds(early(program, result.buffer)) == kinds(program)) == disturbed


def test_it_stays_where_a_step_may_draw_more_than_its_buffers_hold(model: RecordedModel) -> None:
    program = gather_early(model.instructions, model.result.buffer, LIMITS.tokens + 1, LIMITS.tokens)
    assert program is model.instructions


def test_it_stays_in_a_program_without_a_gather(backend: NativeBackend) -> None:
    def build(p: Parts) -> Rows:
        p.backend.add(p.x, p.y, p.x)
        return p.x

    program, result = record(backend, lambda batch, _: build(Parts(backend, batch)), [])
    assert early(program, result.buffer) is program


def test_ops_that_look_at_other_rows_are_not_moved_over() -> None:
    """Held against the list of all: what knows its place or its neighbours stays behind."""
    bound = {OpKind.EMBED, OpKind.ROPE, OpKind.ROPE_STORE, OpKind.STORE_KV, OpKind.ATTENTION, OpKind.ATTENTION_JOIN}
    assert not bound & set(ROW_BY_ROW)
    without_rows = {OpKind.SAMPLE, OpKind.PROBE_READ, OpKind.PROBE_INT8, OpKind.PROBE_BF16}
    assert {OpKind.GATHER, *bound, *ROW_BY_ROW, *without_rows} == set(OpKind)
