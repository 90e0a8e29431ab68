"""The gold model: whatever the engine does to a request, its tokens are those of a lone run against an infinite
cache. The fake model reads through the simulated cache, so a stale or misplaced block changes every token.
"""

from __future__ import annotations

import itertools
import random

import pytest
from trial import Trial

from octavo.types import Request, SamplingParams

VOCAB = 200
SHARED = [[random.Random(text).randrange(VOCAB) for _ in range(100)] for text in range(3)]


def workload(seed: int, count: int) -> list[Request]:
    """Requests that share beginnings of all lengths, greedy and sampled, some with several choices."""
    draw = random.Random(seed)
    requests = []
    for index in range(count):
        start = draw.choice(SHARED)[: draw.randrange(0, 100)]
        prompt = start + [draw.randrange(VOCAB) for _ in range(draw.randrange(1, 30))]
        params = SamplingParams(
            max_tokens=draw.randrange(1, 50),
            temperature=draw.choice([0.0, 1.0]),
            n=draw.choice([1, 1, 1, 2, 5]),
        )
        salt, priority = draw.choice(["", "", "x"]), draw.choice([0, 0, 0, 1])
        requests.append(Request(id=f"g{index}", prompt=prompt, params=params, seed=index, salt=salt, priority=priority))
    return requests


def serve(trial: Trial, requests: list[Request], seed: int, *, abort: bool) -> None:
    """Requests arrive in bursts; now and then one of them, or one of its choices, is aborted."""
    draw = random.Random(seed)
    arriving = list(requests)
    while arriving:
        for _ in range(draw.randrange(0, 4)):
            if arriving:
                trial.add(arriving.pop(0))
        for _ in range(draw.randrange(0, 6)):
            trial.step()
        if abort and trial.requests and draw.random() < 0.3:
            name = draw.choice(sorted(trial.requests))
            trial.abort(name, draw.choice([None, 0, 1]))
    trial.drain()


@pytest.mark.parametrize(
    ("depth", "chunk", "blocks"), list(itertools.product([1, 2], [1, 16, 64, 1000], [12, 24, 400]))
)
def test_tokens_equal_the_lone_runs(depth: int, chunk: int, blocks: int) -> None:
    trial = Trial(depth=depth, chunk=chunk, blocks=blocks, max_len=190, vocab=VOCAB, eos_rate=0.01)
    serve(trial, workload(chunk + blocks, 30), seed=depth, abort=False)
    trial.verify()
    counters = trial.scheduler.counters
    assert counters.finished == sum(request.params.n for request in trial.requests.values())
    assert counters.hit_tokens > 0
    assert blocks != 12 or counters.preemptions > 0
    assert blocks != 400 or counters.preemptions == 0
    assert any(row.forks for plan in trial.runner.plans for row in plan.rows)
    assert any(plan.copies for plan in trial.runner.plans)


@pytest.mark.parametrize(("depth", "block_size", "rows"), list(itertools.product([1, 2], [8, 16, 32], [1, 3, 16])))
def test_tokens_equal_the_lone_runs_under_aborts(depth: int, block_size: int, rows: int) -> None:
    trial = Trial(
        depth=depth,
        block_size=block_size,
        blocks=320 // block_size,
        rows=rows,
        chunk=24,
        max_len=190,
        vocab=VOCAB,
        eos_rate=0.02,
    )
    serve(trial, workload(block_size, 30), seed=rows, abort=True)
    trial.verify()
    assert trial.scheduler.counters.aborted > 0


def test_block_size_chunk_pool_and_depth_change_no_token() -> None:
    """The same tokens in every configuration, and so equal between any two of them."""
    told = []
    for depth, block_size, chunk, blocks in [(1, 8, 7, 40), (2, 16, 64, 20), (1, 32, 512, 100), (2, 8, 1, 200)]:
        trial = Trial(
            depth=depth, block_size=block_size, chunk=chunk, blocks=blocks, max_len=190, vocab=VOCAB, eos_rate=0.01
        )
        serve(trial, workload(5, 20), seed=5, abort=False)
        told.append({choice: heard.tokens for choice, heard in trial.heard.items()})
    assert all(tokens == told[0] for tokens in told[1:])


def test_an_engine_that_dies_is_continued_by_another() -> None:
    """Requests in flight are resubmitted with the tokens delivered so far, and go on exactly."""
    first = Trial(blocks=20, max_len=190, vocab=VOCAB, eos_rate=0.01)
    requests = [
        Request(id=r.id, prompt=r.prompt, params=SamplingParams(max_tokens=40, temperature=1.0), seed=r.seed)
        for r in workload(9, 12)
    ]
    for request in requests:
        first.add(request)
    for _ in range(25):
        first.step()
    second = Trial(blocks=30, depth=2, max_len=190, vocab=VOCAB, eos_rate=0.01)
    for request in requests:
        heard = first.heard[request.id, 0]
        if heard.final is None:
            second.add(
                Request(
                    id=request.id,
                    prompt=request.prompt,
                    params=request.params,
                    seed=request.seed,
                    generated=heard.tokens,
                )
            )
    resumed = [name for name, request in second.requests.items() if request.generated]
    assert resumed
    second.drain()
    for name in second.requests:
        request = first.requests[name]
        whole = first.heard[name, 0].tokens + second.heard[name, 0].tokens
        assert whole == first.lone(request).tokens


def test_sixty_four_streams_in_a_quarter_of_the_pool_they_need() -> None:
    trial = Trial(rows=64, blocks=64 * 12 // 4, max_len=192, vocab=VOCAB)
    for index in range(64):
        trial.ask(SHARED[index % 3][: 50 + index % 50], max_tokens=90, seed=index, temperature=1.0)
    trial.drain()
    trial.verify()
    assert trial.scheduler.counters.preemptions > 0
