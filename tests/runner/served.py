"""A tiny model behind a real scheduler and runner: engines of any shape over it, requests of many kinds, and the
answers that come out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import pytest

from octavo.checkpoint.open import open_checkpoint
from octavo.core.admission import Limits
from octavo.core.block_pool import BlockPool
from octavo.core.engine import Engine
from octavo.core.scheduler import Scheduler
from octavo.errors import ConfigError
from octavo.models.registry import model_class, model_facts
from octavo.ops.backend import Backend, KVLayer
from octavo.ops.native.backend import NativeBackend
from octavo.ops.native.cache import NativeKV
from octavo.ops.reference.backend import ReferenceBackend
from octavo.runner.kv_cache import allocate_kv, kv_spec
from octavo.runner.runner import ModelRunner
from octavo.types import FinishReason, Request, SamplingParams, TokenLogprob, Usage
from tiny_models import EOS, VOCABULARY

MAX_LEN = 256
ROWS = 64
LARGEST_CHUNK = 512


@dataclass
class Answered:
    """Everything that came out for one choice."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: FinishReason | None = None
    usage: Usage | None = None


Answers = dict[tuple[str, int], Answered]


def backend_of(name: str, threads: int = 2) -> Backend:
    """float32 and float64: the reference. native-KV or native-KV-ISA: the native backend, with the best ISA level that
    this CPU runs or the one named. Skips the test where there is none such."""
    kind, *options = name.split("-")
    if kind != "native":
        return ReferenceBackend(name)
    kv_dtype, isa = (*options, None)[:2]
    try:
        return NativeBackend(threads=threads, kv_dtype=kv_dtype, isa=isa)
    except ConfigError as error:  # no native library (tests/native fails without it), or not on this CPU
        pytest.skip(str(error))


class Served:
    """One loaded model. `engine` makes a new engine over it, with a cache full of NaN and no memory of earlier ones.

    `smallest_block` is the smallest block size that the backend serves, `tolerance` how far apart log probabilities of
    one answer may lie: native ones are the same bits.
    """

    def __init__(self, path: Path, backend: Backend | None = None) -> None:
        source = open_checkpoint(path)
        self.backend = backend or ReferenceBackend()
        self.smallest_block, self.tolerance = (16, 0.0) if self.backend.name == "native" else (8, 1e-4)
        self.facts = model_facts(source.config)
        self.model = model_class(source.config).load(
            source.config, source, self.backend, ROWS + LARGEST_CHUNK, max_logits=ROWS
        )
        source.close()

    def engine(
        self,
        *,
        blocks: int = 1024,
        block_size: int = 16,
        chunk: int = 64,
        rows: int = ROWS,
        depth: int = 1,
        caching: bool = True,
        max_len: int = MAX_LEN,
    ) -> Engine:
        kv = allocate_kv(self.backend, kv_spec(self.facts, block_size, self.backend), blocks)
        for layer in kv:
            poison(layer)
        runner = ModelRunner(
            self.model,
            self.backend,
            kv,
            rows=rows,
            max_tokens=rows + chunk,
            max_len=max_len,
            block_size=block_size,
            depth=depth,
        )
        limits = Limits(rows=rows, chunk=chunk, max_len=max_len, vocab=VOCABULARY)
        pool = BlockPool(blocks, block_size, caching=caching)
        return Engine(Scheduler(pool, limits, [EOS]), runner, debug=True)

    def lone(self, request: Request) -> Answered:
        """The answer of an engine that has never seen another request."""
        [answer] = run(self.engine(), [request]).values()
        return answer


def poison(layer: KVLayer, blocks: int | slice = slice(None)) -> None:
    """Fill blocks of a cache with NaN: in a native one every bit is set, which is NaN in bf16 and in int8's scales."""
    if isinstance(layer, NativeKV):
        layer.memory[blocks] = 0xFF
    else:
        layer.keys[blocks] = np.nan
        layer.values[blocks] = np.nan


def run(engine: Engine, requests: Iterable[Request]) -> Answers:
    """All answers, after everything has ended. Nothing may be left behind."""
    answers: Answers = {}
    for request in requests:
        engine.add(request)
    while not engine.idle:
        for output in engine.step():
            answer = answers.setdefault((output.request_id, output.choice), Answered())
            assert answer.finish is None, "an output after the final one"
            answer.tokens += output.tokens
            answer.logprobs += output.logprobs or []
            answer.finish, answer.usage = output.finish, output.usage or answer.usage
    assert all(answer.finish is not None for answer in answers.values()), "an answer without an end"
    assert engine.scheduler.pool.free == engine.scheduler.pool.total, "blocks leaked"
    return answers


KINDS: tuple[SamplingParams, ...] = (
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.9),
    SamplingParams(temperature=0.7, top_p=0.8, logprobs=5),
    SamplingParams(temperature=1.2, top_k=12, min_p=0.02),
    SamplingParams(temperature=0.0, repetition_penalty=1.3, logprobs=3),
    SamplingParams(temperature=0.8, presence_penalty=0.6, frequency_penalty=0.4, ignore_eos=True),
    SamplingParams(temperature=1.0, top_p=0.95, repetition_penalty=1.1, logprobs=0),
)
"""Greedy and random, with and without each filter and penalty."""


def mixed_requests(
    count: int, *, name: str = "r", seed: int = 0, longest: int = 130, new_tokens: int = 24
) -> list[Request]:
    """Requests of all KINDS with prompts of 1 .. `longest` random tokens, each with a seed of its own."""
    generator = np.random.default_rng(seed)
    requests = []
    for index in range(count):
        length = 1 + int(generator.integers(longest)) if index else 1
        prompt = generator.integers(0, VOCABULARY, length).tolist()
        params = msgspec.structs.replace(KINDS[index % len(KINDS)], max_tokens=int(generator.integers(5, new_tokens)))
        requests.append(Request(id=f"{name}{index}", prompt=prompt, params=params, seed=1000 + index))
    return requests


def assert_same(got: Answered, expected: Answered, tolerance: float) -> None:
    """The same tokens and end, and log probabilities that differ by `tolerance` at most; at 0.0, the same bits."""
    assert got.tokens == expected.tokens
    assert got.finish == expected.finish
    assert [report.token for report in got.logprobs] == [report.token for report in expected.logprobs]
    if tolerance == 0.0:
        assert got.logprobs == expected.logprobs
        return
    for ours, theirs in zip(got.logprobs, expected.logprobs, strict=True):
        assert abs(ours.logprob - theirs.logprob) < tolerance
        assert len(ours.top) == len(theirs.top)
        np.testing.assert_allclose([p for _, p in ours.top], [p for _, p in theirs.top], atol=tolerance)
