"""A request's tokens do not depend on who else is served, on chunking, prefix hits, preemption, forks, block size or
pipelining. The oracle is always the lone run of the same request on a fresh engine. float64 is exact in practice;
float32 is compared by tokens too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from served import Answered, Served, assert_same, mixed_requests, run

from octavo.types import FinishReason, Request, SamplingParams
from tiny_models import VOCABULARY

REQUESTS = mixed_requests(23)
GROWING = mixed_requests(12, name="growing", seed=1, longest=24, new_tokens=64)
MODELS = [
    ("llama", "float64"),
    ("mistral", "float64"),
    ("qwen3", "float64"),
    ("llama", "float32"),
    ("qwen2", "float32"),
]


@pytest.fixture(scope="module", params=MODELS, ids="-".join)
def served(request: pytest.FixtureRequest, tiny_model: Callable[[str], Path]) -> Served:
    name, dtype = request.param
    return Served(tiny_model(name), dtype)


@pytest.fixture(scope="module")
def lone(served: Served) -> dict[str, Answered]:
    return {request.id: served.lone(request) for request in REQUESTS + GROWING}


def test_the_requests_are_worth_comparing(lone: dict[str, Answered]) -> None:
    """Answers differ from each other, vary within themselves, and end in more than one way."""
    assert len({tuple(answer.tokens) for answer in lone.values()}) == len(lone)
    assert all(len(set(answer.tokens)) > 1 for answer in lone.values() if len(answer.tokens) > 4)
    assert any(answer.finish is FinishReason.LENGTH for answer in lone.values())


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("chunk", [16, 64, 512])
def test_batched_with_22_others(served: Served, lone: dict[str, Answered], chunk: int, depth: int) -> None:
    engine = served.engine(chunk=chunk, depth=depth)
    for (request_id, _), answer in run(engine, REQUESTS).items():
        assert_same(answer, lone[request_id])


@pytest.mark.parametrize("block_size", [8, 16, 32])
def test_block_sizes(served: Served, lone: dict[str, Answered], block_size: int) -> None:
    engine = served.engine(block_size=block_size, blocks=4096 // block_size)
    for (request_id, _), answer in run(engine, REQUESTS).items():
        assert_same(answer, lone[request_id])


def test_prefix_hits(served: Served, lone: dict[str, Answered]) -> None:
    """The second time, whole blocks of each longer prompt are found and not computed."""
    engine = served.engine()
    run(engine, REQUESTS)
    again = run(engine, REQUESTS)
    for request in REQUESTS:
        answer = again[request.id, 0]
        assert_same(answer, lone[request.id])
        assert answer.usage is not None
        assert answer.usage.cached_tokens == (len(request.prompt) - 1) // 16 * 16
    assert engine.stats().hit_tokens > 500


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("caching", [True, False])
def test_preempted_and_resumed(served: Served, lone: dict[str, Answered], caching: bool, depth: int) -> None:
    """Short prompts are let in together, and then their answers outgrow a pool of 112 tokens."""
    engine = served.engine(blocks=14, block_size=8, depth=depth, caching=caching)
    for (request_id, _), answer in run(engine, GROWING).items():
        assert_same(answer, lone[request_id])
    assert engine.stats().preemptions > 0


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("prompt_tokens", [1, 31, 32, 45])
def test_forked(served: Served, prompt_tokens: int, depth: int) -> None:
    """Choice i of n=4 is the lone run with choice=i, whether the last block is shared partly filled, full or absent."""
    params = SamplingParams(temperature=1.0, n=4, max_tokens=40, frequency_penalty=0.3, logprobs=2, ignore_eos=True)
    prompt = np.random.default_rng(5).integers(0, VOCABULARY, prompt_tokens).tolist()
    request = Request(id="forked", prompt=prompt, params=params, seed=77)
    engine = served.engine(depth=depth)
    answers = run(engine, [request, *REQUESTS[:5]])
    one = msgspec.structs.replace(params, n=1)
    for choice in range(4):
        alone = served.lone(msgspec.structs.replace(request, params=one, choice=choice))
        assert_same(answers["forked", choice], alone)
    assert len({tuple(answers["forked", choice].tokens) for choice in range(4)}) == 4


def test_resumed_after_tokens_already_delivered(served: Served, lone: dict[str, Answered]) -> None:
    """What a restarted engine gets: the prompt and the tokens that the client has. It goes on where the old one was."""
    resumed = []
    for request in REQUESTS:
        delivered = lone[request.id].tokens[:3]
        if request.params.max_tokens is not None and len(delivered) == 3 < len(lone[request.id].tokens):
            resumed.append(msgspec.structs.replace(request, generated=delivered))
    assert len(resumed) > 15
    for (request_id, _), answer in run(served.engine(), resumed).items():
        assert answer.tokens == lone[request_id].tokens[3:]
        assert answer.finish == lone[request_id].finish
