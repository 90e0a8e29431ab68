"""One request, one answer: a request's tokens are the same alone, among 22 others, chunked at 16, 64 and 512, after a
prefix hit, preempted and resumed, forked with n=4, and after its engine was killed in the middle of the stream.

Every engine here is the real one: a child process that computes with the reference backend in float64, or with the
native one in its own formats.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from octavo.checkpoint.open import open_checkpoint
from octavo.models.registry import model_facts
from octavo.ops.choose import Wish, choose_backend
from octavo.ops.native.library import library_path
from octavo.runner.kv_cache import kv_spec
from octavo.service.client import EngineClient
from octavo.types import FinishReason, Request, SamplingParams
from tiny_models import EOS, VOCABULARY

PROMPT = random.Random(1).choices(range(VOCABULARY), k=100)
KINDS = {
    "greedy": SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True),
    "random": SamplingParams(temperature=0.9, top_p=0.95, frequency_penalty=0.2, max_tokens=60, ignore_eos=True),
}
# name -> (model, options of the engine, those of engines that the request has for itself)
BACKENDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "reference": ("llama", {"backend": "reference", "dtype": "float64"}, {}),
    "native": ("llama-q4_k", {"backend": "native", "kv_dtype": "bf16", "threads": 2}, {"threads": 1}),
    "native, int8 cache": ("qwen3", {"backend": "native", "kv_dtype": "int8", "threads": 1}, {"threads": 2}),
    "native, quantised while loading": ("llama-wide", {"backend": "native", "quantize": "q4", "threads": 2}, {}),
}


def ask(kind: str, name: str = "r", **changes: Any) -> Request:
    params = msgspec.structs.replace(KINDS[kind], **changes)
    return Request(id=name, prompt=PROMPT, params=params, seed=11)


def others(count: int) -> list[Request]:
    """Requests unlike ours, and unlike each other."""
    draw = random.Random(2)
    return [
        Request(
            id=f"other{i}",
            prompt=draw.choices(range(VOCABULARY), k=draw.randrange(1, 120)),
            params=SamplingParams(temperature=draw.choice([0.0, 1.0]), max_tokens=60, ignore_eos=True),
            seed=i,
        )
        for i in range(count)
    ]


@asynccontextmanager
async def engine(path: Path, **options: Any) -> AsyncIterator[EngineClient]:
    config = {"kv_memory": "16MiB", "debug": True} | options
    client = EngineClient("octavo.build:build_engine", {"config": config, "path": str(path), "eos_ids": [EOS]})
    await client.start()
    try:
        await client.ready()
        yield client
    finally:
        await client.close()


async def answers(
    client: EngineClient, requests: list[Request], on_token: Callable[[int], None] | None = None
) -> dict[str, list[list[int]]]:
    """Tokens of each choice of each request, all submitted at once. `on_token` hears how many the first one has."""
    streams = [client.submit(request) for request in requests]

    async def read(index: int) -> list[list[int]]:
        tokens: list[list[int]] = [[] for _ in range(requests[index].params.n)]
        async for outputs in streams[index]:
            for output in outputs:
                tokens[output.choice] += output.tokens
                assert output.finish in (None, FinishReason.LENGTH), f"{output.request_id}: {output.error}"
            if index == 0 and on_token is not None:
                on_token(len(tokens[0]))
        return tokens

    brought = await asyncio.gather(*(read(index) for index in range(len(requests))))
    return {request.id: tokens for request, tokens in zip(requests, brought, strict=True)}


async def same_tokens(path: Path, kind: str, options: dict[str, Any], lone_options: dict[str, Any]) -> None:
    request = ask(kind)

    async with engine(path, **options | lone_options) as client:
        alone = (await answers(client, [request]))["r"][0]
        assert len(alone) == 60
        again = (await answers(client, [ask(kind, "again")]))["again"][0]
        assert client.stats.hit_tokens == len(PROMPT) // 16 * 16, "the second run was to start from a prefix hit"
        assert again == alone, "after a prefix hit"
        forked = (await answers(client, [ask(kind, "forked", n=4)]))["forked"]
        assert forked[0] == alone, "forked with n=4"
        assert (len({tuple(tokens) for tokens in forked}) == 1) == request.params.greedy

    for chunk in (16, 64, 512):
        async with engine(path, **options, chunk=chunk) as client:
            together = await answers(client, [request, *others(22)])
            assert together["r"][0] == alone, f"among 22 others, chunked at {chunk}"

    # An older chat grows from 1 block to 10. Ours is admitted with 7 of the 13 and has to give them up.
    async with engine(path, **options, kv_memory=f"{13 * block_bytes(path, options)}B") as client:
        params = SamplingParams(max_tokens=150, ignore_eos=True)
        older = Request(id="older", prompt=[1, 2, 3], params=params, seed=5)
        assert (await answers(client, [older, request]))["r"][0] == alone, "preempted and resumed"
        assert client.stats.preemptions > 0
        assert client.stats.blocks_used == 0

    async with engine(path, **options) as client:
        killed: list[int] = []

        def kill_at_20_and_40(tokens: int) -> None:
            if len(killed) < 2 and tokens >= 20 * (len(killed) + 1) and client.state == "ready":
                killed.append(tokens)
                assert client.pid is not None
                os.kill(client.pid, signal.SIGKILL)

        survived = await answers(client, [request, *others(5)], kill_at_20_and_40)
        assert client.restarts == 2
        assert survived["r"][0] == alone, f"killed after {killed} tokens"


def block_bytes(path: Path, options: dict[str, Any]) -> int:
    """Bytes of one KV block."""
    wish = Wish(options.get("dtype", "auto"), kv_dtype=options.get("kv_dtype", "auto"))
    backend, _ = choose_backend(options["backend"], wish)
    return kv_spec(model_facts(open_checkpoint(path).config), 16, backend).bytes_per_block


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_same_tokens(tiny_model: Callable[[str], Path], backend: str, kind: str) -> None:
    model, options, lone_options = BACKENDS[backend]
    if options["backend"] == "native" and not library_path().exists():  # tests/native fails without it
        pytest.skip("this installation has no native library")
    asyncio.run(same_tokens(tiny_model(model), kind, options, lone_options))
