"""A client of a simulated engine in a real child process, and what its streams must bring."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from octavo.service.client import EngineClient
from octavo.service.stream import Stream
from octavo.sim.build import SimSpec
from octavo.sim.lone import LoneRun, lone_run
from octavo.types import FinishReason, Output, Request, SamplingParams, TokenLogprob

FACTORY = "octavo.sim.build:build_sim_engine"


@asynccontextmanager
async def running(factory: str = FACTORY, *, wait: bool = True, **spec: Any) -> AsyncIterator[EngineClient]:
    """A started client, by default one that is ready; closed at the end. `spec` holds fields of SimSpec."""
    client = EngineClient(factory, spec)
    await client.start()
    try:
        if wait:
            await client.ready()
        yield client
    finally:
        await client.close()


def ask(name: str = "r", prompt: list[int] | None = None, *, seed: int = 1, **params: Any) -> Request:
    params.setdefault("max_tokens", 20)
    return Request(id=name, prompt=prompt or [1, 2, 3], params=SamplingParams(**params), seed=seed)


def alone(request: Request, choice: int = 0, **spec: Any) -> LoneRun:
    """What choice number `choice` of the request brings when nothing else happens."""
    sim = msgspec.convert(spec, SimSpec)
    return lone_run(request, sim.model, max_len=sim.max_len, eos_ids=sim.eos_ids, choice=choice)


@dataclass
class Answer:
    """All that a stream brought for one choice."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    usages: int = 0
    final: Output | None = None

    @property
    def finish(self) -> FinishReason | None:
        return None if self.final is None else self.final.finish

    @property
    def error_kind(self) -> str | None:
        return None if self.final is None or self.final.error is None else self.final.error.kind

    def add(self, output: Output) -> None:
        """Holds what every consumer may rely on: nothing after the final Output, usage with the first and final."""
        assert self.final is None, f"{output} comes after {self.final}"
        assert (output.usage is not None) == (output.finish is not None or not self.tokens), output
        self.tokens += output.tokens
        self.logprobs += output.logprobs or []
        self.usages += output.usage is not None
        if output.finish is not None:
            self.final = output

    def is_whole(self, run: LoneRun, prompt_tokens: int) -> bool:
        """Complete, as the lone run had it, and counted right."""
        if self.final is None or self.final.usage is None:
            return False
        counted = len(run.tokens) + (run.stop_token is not None)
        return (
            self.tokens == run.tokens
            and (self.final.finish, self.final.stop_token) == (run.finish, run.stop_token)
            and (self.final.usage.prompt_tokens, self.final.usage.completion_tokens) == (prompt_tokens, counted)
        )


async def read(stream: Stream) -> list[Answer]:
    """Read a stream to its end. One Answer per choice."""
    answers = [Answer() for _ in range(stream.request.params.n)]
    async for outputs in stream:
        for output in outputs:
            assert output.request_id == stream.request.id
            answers[output.choice - stream.request.choice].add(output)
    assert all(answer.final is not None for answer in answers)
    return answers


async def read_one(stream: Stream) -> Answer:
    (answer,) = await read(stream)
    return answer
