"""Many more requests than memory, and memory that is full of traps: nobody's tokens change and nothing leaks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from served import Answered, Served, assert_same, backend_of, mixed_requests, poison, run

from octavo.core.engine import Engine

BLOCK = 16
STREAMS = mixed_requests(64, seed=3, longest=24, new_tokens=160)
MODELS = [("llama", "float64"), ("llama-q4_1", "native-bf16"), ("mistral", "native-int8")]


@pytest.fixture(scope="module", params=MODELS, ids="-".join)
def served(request: pytest.FixtureRequest, tiny_model: Callable[[str], Path]) -> Served:
    name, backend = request.param
    return Served(tiny_model(name), backend_of(backend))


@pytest.fixture(scope="module")
def lone(served: Served) -> dict[str, Answered]:
    return {request.id: served.lone(request) for request in STREAMS}


@pytest.mark.parametrize("depth", [1, 2])
def test_64_streams_in_a_quarter_of_the_memory(served: Served, lone: dict[str, Answered], depth: int) -> None:
    held = [len(request.prompt) + len(lone[request.id].tokens) for request in STREAMS]
    wanted = sum(-(-tokens // BLOCK) for tokens in held)
    engine = served.engine(blocks=wanted // 4, depth=depth)
    answers = run(engine, STREAMS)
    assert len(answers) == 64
    for (request_id, _), answer in answers.items():
        assert_same(answer, lone[request_id], served.tolerance)
    stats = engine.stats()
    assert stats.preemptions > 0
    assert stats.blocks_used == 0
    assert stats.useful_slot_seconds <= stats.allocated_slot_seconds


@pytest.mark.parametrize("depth", [1, 2])
def test_traps_in_memory_that_nobody_owns(served: Served, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before every step each block that is free and not cached is filled with NaN again, and table entries that no
    sequence has name a block that does not exist."""
    engine = served.engine(blocks=40, depth=depth)
    runner = engine._runner
    runner._state.table_RW.fill(2**30)
    launch = runner.launch

    def launch_among_traps(plan: object) -> object:
        _poison_free_blocks(engine)
        return launch(plan)

    monkeypatch.setattr(runner, "launch", launch_among_traps)
    requests = mixed_requests(23, seed=4)
    answers = run(engine, requests)
    for request in requests:
        assert_same(answers[request.id, 0], served.lone(request), served.tolerance)
    assert engine.stats().evictions > 0, "no block was used twice"


def test_the_traps_work(served: Served) -> None:
    """A block poisoned while a sequence owns it does change its answer."""
    [request] = mixed_requests(1, seed=4)
    engine = served.engine()
    engine.add(request)
    engine.step()
    owned = engine.scheduler.running[0].blocks[0]
    for layer in engine._runner._kv:
        poison(layer, owned)
    tokens = [token for _ in range(8) for output in engine.step() for token in output.tokens]
    assert tokens != served.lone(request).tokens[1:9]


def _poison_free_blocks(engine: Engine) -> None:
    pool = engine.scheduler.pool
    for block in range(pool.total):
        if pool.refs(block) == 0 and pool._key[block] is None:
            for layer in engine._runner._kv:
                poison(layer, block)
