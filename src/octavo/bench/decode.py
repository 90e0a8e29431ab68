"""How fast an engine in this process reads prompts and writes answers, without HTTP, text or pipes. Works on any
Engine, so also on a simulated one.
"""

from __future__ import annotations

import random
import time

import msgspec

from octavo.config import Resolved
from octavo.core.engine import Engine
from octavo.errors import BenchError
from octavo.types import Request, SamplingParams


class DecodeFigures(msgspec.Struct, frozen=True):
    """One run of `users` sequences at once. Prefill lasts until every sequence has its first token, decode from
    then on; `step_ms` is the mean time of a decode step."""

    users: int
    prefill_tok_s: float
    decode_tok_s: float
    step_ms: float


def bench_decode(
    engine: Engine, resolved: Resolved, users: int, *, prompt_tokens: int = 128, output_tokens: int = 64, seed: int = 0
) -> DecodeFigures:
    """Run `users` random prompts to their end, greedily. BenchError when the engine is too small for them."""
    if users > resolved.rows:
        raise BenchError(f"{users} users need --max-running {users} at least; it is {resolved.rows}")
    if prompt_tokens + output_tokens > resolved.max_len or output_tokens < 2:
        raise BenchError(
            f"a prompt of {prompt_tokens} and {output_tokens} tokens of output (2 at least) must fit the context of "
            f"{resolved.max_len} tokens"
        )
    rng = random.Random(seed + users)
    params = SamplingParams(max_tokens=output_tokens, temperature=0.0, ignore_eos=True)
    began = time.perf_counter()
    for number in range(users):
        prompt = [rng.randrange(resolved.vocab) for _ in range(prompt_tokens)]
        engine.add(Request(id=f"bench-{number}", prompt=prompt, params=params, seed=seed))
    written: dict[str, int] = {}
    while len(written) < users:
        _step(engine, written)
    prefilled = time.perf_counter()
    at_prefill = sum(written.values())
    steps = 0
    while not engine.idle:
        _step(engine, written)
        steps += 1
    decode_s = time.perf_counter() - prefilled
    return DecodeFigures(
        users=users,
        prefill_tok_s=users * prompt_tokens / (prefilled - began),
        decode_tok_s=(sum(written.values()) - at_prefill) / decode_s,
        step_ms=decode_s / steps * 1e3,
    )


def _step(engine: Engine, written: dict[str, int]) -> None:
    """One step; `written` counts each request's tokens from its first on."""
    for output in engine.step():
        if output.error is not None:
            raise BenchError(f"the engine gave a request up: {output.error.message}")
        if output.tokens:
            written[output.request_id] = written.get(output.request_id, 0) + len(output.tokens)
