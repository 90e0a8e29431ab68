"""How much of the allocated KV memory holds tokens under the load of `octavo bench serve`: the real scheduler, the real
pool and the real accounting on a virtual clock. The same figure is read from a running server's /metrics by the bench.
"""

from __future__ import annotations

import random
from collections import deque

import pytest

from octavo.bench.chats import OUTPUT_LENGTHS, PROMPT_LENGTHS, requests_per_user
from octavo.core.admission import Limits
from octavo.core.block_pool import BlockPool
from octavo.core.engine import Engine, Stats
from octavo.core.scheduler import Scheduler
from octavo.sim.model import FakeModel
from octavo.sim.runner import SimRunner, StepCost
from octavo.types import Request, SamplingParams

BLOCKS = 2048
VOCAB = 1000
COST = StepCost(fixed_s=0.02, token_s=0.003, row_s=0.001)  # about what a small machine takes


def closed_loop(users: int, seed: int, block_size: int) -> Stats:
    """Every user has one request under way at a time, until each has had the load test's number of them."""
    rng = random.Random(seed)
    runner = SimRunner(FakeModel(VOCAB), rows=64, blocks=BLOCKS, block_size=block_size, cost=COST)
    limits = Limits(rows=64, chunk=256, max_len=4096, vocab=VOCAB)
    engine = Engine(Scheduler(BlockPool(BLOCKS, block_size), limits), runner, clock=lambda: runner.now_s)
    chats = [deque(_request(rng, f"{user}/{i}") for i in range(requests_per_user(users))) for user in range(users)]
    for queue in chats:
        engine.add(queue.popleft())
    while not engine.idle:
        for output in engine.step():
            queue = chats[int(output.request_id.split("/")[0])]
            if output.finish is not None and queue:
                engine.add(queue.popleft())
    return engine.stats()


def _request(rng: random.Random, name: str) -> Request:
    prompt = rng.choices(range(VOCAB), k=PROMPT_LENGTHS.draw(rng))
    params = SamplingParams(max_tokens=OUTPUT_LENGTHS.draw(rng), temperature=0.0, ignore_eos=True)
    return Request(id=name, prompt=prompt, params=params, seed=0)


@pytest.mark.parametrize(("users", "seed"), [(23, 0), (23, 1), (23, 2), (8, 0), (64, 0)])
def test_at_least_96_percent_of_allocated_slots_hold_tokens(users: int, seed: int) -> None:
    stats = closed_loop(users, seed, block_size=16)
    assert stats.finished == users * requests_per_user(users)
    assert stats.useful_slot_seconds / stats.allocated_slot_seconds >= 0.96


def test_larger_blocks_waste_more() -> None:
    """Half a block per chat is empty on average, so the figure above is not true of any block size."""
    share = {}
    for block_size in (8, 16, 32):
        stats = closed_loop(23, 0, block_size)
        share[block_size] = stats.useful_slot_seconds / stats.allocated_slot_seconds
    assert share[8] > share[16] > share[32]
    assert share[32] < 0.96
