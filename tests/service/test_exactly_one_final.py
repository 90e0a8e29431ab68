"""Whatever happens, in whatever order: each choice of each accepted request gets exactly one final Output, and its
tokens are those of the lone run, as far as they came.

The client is the real one. In the place of the child process the test runs the same engine turns itself, so that
it decides when mail arrives, when messages come back, and between which of them the engine dies.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random

import msgspec
import pytest
from sim_client import FACTORY, Answer, alone, ask

from octavo.core.engine import Engine
from octavo.errors import QueueFull
from octavo.service import client as client_module
from octavo.service.blame import DEATHS_PER_REQUEST
from octavo.service.child import turn
from octavo.service.client import EngineClient
from octavo.service.messages import FromEngine, Ready, Start, ToEngine
from octavo.service.stream import Stream
from octavo.sim.build import build_sim_engine
from octavo.types import FinishReason

pytestmark = pytest.mark.anyio

_POISON = 999
_SPEC = {"rows": 3, "blocks": 12, "block_size": 8, "chunk": 8, "max_len": 64, "vocab": 1000, "queue": 4}
_SPEC |= {"eos_rate": 0.1, "poison_token": _POISON, "depth": 2}


class ScriptedProcess:
    """Takes the place of EngineProcess: does nothing until the test says so."""

    def __init__(self, start: Start, on_message: Callable[[FromEngine], None], on_exit: Callable[[int], None]) -> None:
        self._start = start
        self._on_message = on_message
        self._on_exit = on_exit
        self._mail: deque[bytes] = deque()
        self._told: deque[bytes] = deque()
        self.engine: Engine | None = None

    def post(self, message: ToEngine) -> None:
        self._mail.append(msgspec.msgpack.encode(message))

    def load(self) -> None:
        self.engine, resolved = build_sim_engine(dict(self._start.payload), lambda *_: None)
        self._told.append(msgspec.msgpack.encode(Ready(resolved, 0.0)))

    def turn(self, letters: int) -> bool:
        """One turn of the engine with the first of its mail. False when that killed it."""
        assert self.engine is not None
        mail = [self._mail.popleft() for _ in range(min(letters, len(self._mail)))]
        try:
            told = turn(self.engine, [msgspec.msgpack.decode(letter, type=ToEngine) for letter in mail])
        except RuntimeError:
            return False
        self._told.append(msgspec.msgpack.encode(told))
        return True

    def deliver(self, messages: int) -> None:
        for _ in range(min(messages, len(self._told))):
            self._on_message(msgspec.msgpack.decode(self._told.popleft(), type=FromEngine))

    def exit(self) -> None:
        self._on_exit(-9)


class Watched:
    """A stream, what it brought so far, and what each choice brings when run alone."""

    def __init__(self, stream: Stream, deaths: int) -> None:
        self.stream = stream
        self.deaths = deaths  # of engines, before the request came
        self.answers = [Answer() for _ in range(stream.request.params.n)]
        self.runs = [alone(stream.request, choice, **_SPEC) for choice in range(stream.request.params.n)]

    async def look(self) -> None:
        """Take what has arrived, without waiting."""
        try:
            async with asyncio.timeout(0):
                for output in await anext(self.stream):
                    self.answers[output.choice].add(output)
        except (TimeoutError, StopAsyncIteration):
            pass

    def check(self, deaths: int, dead: bool) -> None:
        prompt_tokens = len(self.stream.request.prompt)
        for answer, run in zip(self.answers, self.runs, strict=True):
            assert answer.tokens == run.tokens[: len(answer.tokens)]
            if answer.finish in (FinishReason.STOP, FinishReason.LENGTH):
                assert answer.is_whole(run, prompt_tokens)
            elif answer.finish is FinishReason.ERROR:
                allowed = {"QueueFull"} if not answer.tokens else set()
                allowed |= {"EngineDied"} if deaths - self.deaths >= DEATHS_PER_REQUEST else set()
                allowed |= {"EngineUnavailable"} if dead else set()
                assert answer.error_kind in allowed


class Scenario:
    """A client and an engine to which a seeded sequence of events happens."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.process: ScriptedProcess
        self.watched: list[Watched] = []
        self.aborted: set[int] = set()
        self.deaths = 0
        self.kills = self.random.choice([0.02, 0.1, 0.3])
        self.client = EngineClient(FACTORY, {**_SPEC}, queue=6)

    @property
    def dead(self) -> bool:
        return self.client.state == "dead"

    def spawn(
        self, start: Start, on_message: Callable[[FromEngine], None], on_exit: Callable[[int], None], child: None
    ) -> ScriptedProcess:
        self.process = ScriptedProcess(start, on_message, on_exit)
        return self.process

    async def run(self, events: int) -> None:
        await self.client.start()
        for _ in range(events):
            if not self.dead:
                (event,) = self.random.choices(
                    [self.submit, self.abort, self.turn, self.deliver, self.die], [2, 1, 8, 8, self.kills]
                )
                event()
                await self.check()
        for _ in range(3000):
            if self.client.unfinished:
                self.turn(letters=100)
                self.deliver(messages=100)
        await self.check()
        assert all(answer.final is not None for watched in self.watched for answer in watched.answers)
        if self.client.state == "ready":
            for _ in range(3):  # a step of what was aborted last may still be in flight
                self.turn(letters=100)
                self.deliver(messages=100)
            assert self.client.stats.blocks_used == self.client.stats.running == self.client.stats.waiting == 0

    # --- events ---

    def submit(self) -> None:
        random = self.random
        prompt = [random.randint(1, 3) for _ in range(random.randint(1, 20))]
        if random.random() < 0.1:
            prompt.append(_POISON)
        request = ask(
            "same id",
            prompt,
            seed=random.randint(0, 5),
            max_tokens=random.randint(1, 12),
            n=random.choice([1, 1, 2, 3]),
            temperature=random.choice([0.0, 1.0]),
        )
        limit = 6 if self.client.resolved is None else _SPEC["queue"]
        full = self.client.state != "ready" and self.client.stats.waiting >= limit
        try:
            stream = self.client.submit(msgspec.structs.replace(request, priority=random.choice([0, 0, 0, -1, 1])))
        except QueueFull:
            assert full
        else:
            assert not full
            self.watched.append(Watched(stream, self.deaths))

    def abort(self) -> None:
        if self.watched:
            which = self.random.randrange(max(0, len(self.watched) - 8), len(self.watched))
            self.aborted.add(which)
            self.watched[which].stream.abort(self.random.choice([None, 0, 1, 2]))

    def turn(self, letters: int | None = None) -> None:
        """The engine loads or takes a step, which may crash it."""
        if self.process.engine is None:
            self.process.load()
        elif not self.process.turn(self.random.randint(0, 5) if letters is None else letters):
            self.die()

    def deliver(self, messages: int | None = None) -> None:
        self.process.deliver(self.random.randint(1, 3) if messages is None else messages)

    def die(self) -> None:
        """The last words of an engine arrive as far as they had left it."""
        self.process.deliver(self.random.randint(0, 3))
        self.deaths += 1
        self.process.exit()

    # --- what must hold after each ---

    async def check(self) -> None:
        for watched in self.watched:
            await watched.look()
            watched.check(self.deaths, self.dead)
        aborted = {i for i, w in enumerate(self.watched) if any(a.finish is FinishReason.ABORT for a in w.answers)}
        assert aborted <= self.aborted
        assert self.client.unfinished == sum(not watched.stream.done for watched in self.watched)
        if self.client.state in ("loading", "restarting"):
            assert self.client.stats.waiting == self.client.unfinished


@pytest.mark.parametrize("seed", range(60))
async def test_each_choice_ends_exactly_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario(seed)
    monkeypatch.setattr(client_module, "EngineProcess", scenario.spawn)
    await scenario.run(events=250)
