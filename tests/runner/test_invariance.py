"""A request's tokens do not depend on who else is served, on chunking, prefix hits, preemption, forks, block size or
pipelining. The oracle is always the lone run of the same request on a fresh engine. float64 is exact in practice;
float32 is compared by tokens too. On the native backend log probabilities are equal to the last bit as well, and the
lone run has another number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from served import Answered, Served, assert_same, backend_of, mixed_requests, run

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
    ("llama", "native-bf16"),
    ("llama-biased", "native-int8"),  # float16 weights
    ("llama-yarn", "native-bf16-avx2"),  # float32 weights
    ("mistral", "native-int8"),  # a sliding window
    ("qwen3", "native-bf16"),  # norms of queries and keys
    ("llama-q4_1", "native-bf16"),
    ("llama-q4_1", "native-int8-scalar"),
    ("llama-q4_k", "native-int8"),
    ("llama-mixed", "native-bf16-avx2"),
]
LONG = Request(
    id="long",
    prompt=np.random.default_rng(9).integers(0, VOCABULARY, 1100).tolist(),
    params=SamplingParams(temperature=0.8, max_tokens=20, ignore_eos=True, logprobs=3),
    seed=5,
)


@pytest.fixture(scope="module", params=MODELS, ids="-".join)
def both(request: pytest.FixtureRequest, tiny_model: Callable[[str], Path]) -> tuple[Served, Served]:
    """A model for many requests, and for requests alone: the native one with 2 threads and with 1."""
    name, backend = request.param
    path = tiny_model(name)
    served = Served(path, backend_of(backend, threads=2))
    return served, Served(path, backend_of(backend, threads=1)) if served.backend.name == "native" else served


@pytest.fixture(scope="module")
def served(both: tuple[Served, Served]) -> Served:
    return both[0]


@pytest.fixture(scope="module")
def alone(both: tuple[Served, Served]) -> Served:
    return both[1]


@pytest.fixture(scope="module")
def lone(alone: Served) -> dict[str, Answered]:
    return {request.id: alone.lone(request) for request in REQUESTS + GROWING}


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
        assert_same(answer, lone[request_id], served.tolerance)


@pytest.mark.parametrize("block_size", [8, 16, 32])
def test_block_sizes(served: Served, lone: dict[str, Answered], block_size: int) -> None:
    if block_size < served.smallest_block:
        pytest.skip(f"the {served.backend.name} backend has no blocks of {block_size}")
    engine = served.engine(block_size=block_size, blocks=4096 // block_size)
    for (request_id, _), answer in run(engine, REQUESTS).items():
        assert_same(answer, lone[request_id], served.tolerance)


def test_prefix_hits(served: Served, lone: dict[str, Answered]) -> None:
    """The second time, whole blocks of each longer prompt are found and not computed."""
    engine = served.engine()
    run(engine, REQUESTS)
    again = run(engine, REQUESTS)
    for request in REQUESTS:
        answer = again[request.id, 0]
        assert_same(answer, lone[request.id], served.tolerance)
        assert answer.usage is not None
        assert answer.usage.cached_tokens == (len(request.prompt) - 1) // 16 * 16
    assert engine.stats().hit_tokens > 500


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("caching", [True, False])
def test_preempted_and_resumed(served: Served, lone: dict[str, Answered], caching: bool, depth: int) -> None:
    """Short prompts are let in together, and then their answers outgrow a pool of 112 tokens."""
    block_size = served.smallest_block
    engine = served.engine(blocks=112 // block_size, block_size=block_size, depth=depth, caching=caching)
    for (request_id, _), answer in run(engine, GROWING).items():
        assert_same(answer, lone[request_id], served.tolerance)
    assert engine.stats().preemptions > 0


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("prompt_tokens", [1, 31, 32, 45])
def test_forked(served: Served, alone: Served, prompt_tokens: int, depth: int) -> None:
    """Choice i of n=4 is the lone run with choice=i, whether the last block is shared partly filled, full or absent."""
    params = SamplingParams(temperature=1.0, n=4, max_tokens=40, frequency_penalty=0.3, logprobs=2, ignore_eos=True)
    prompt = np.random.default_rng(5).integers(0, VOCABULARY, prompt_tokens).tolist()
    request = Request(id="forked", prompt=prompt, params=params, seed=77)
    engine = served.engine(depth=depth)
    answers = run(engine, [request, *REQUESTS[:5]])
    one = msgspec.structs.replace(params, n=1)
    for choice in range(4):
        expected = alone.lone(msgspec.structs.replace(request, params=one, choice=choice))
        assert_same(answers["forked", choice], expected, served.tolerance)
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


@pytest.mark.parametrize("chunk", [16, 512])
def test_a_context_of_several_splits(served: Served, alone: Served, chunk: int) -> None:
    """Attention sums a long context in parts, which other workers may take; among others, and after a prefix hit."""
    if served.facts.context_length < len(LONG.prompt):
        pytest.skip("a model of short contexts")
    expected = run(alone.engine(chunk=64, max_len=1200), [LONG])["long", 0]
    engine = served.engine(chunk=chunk, max_len=1200)
    for _ in range(2):
        assert_same(run(engine, [LONG, *REQUESTS])["long", 0], expected, served.tolerance)
    assert engine.stats().hit_tokens > 1000
