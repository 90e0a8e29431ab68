"""Trial: an engine without a model, watched at every operation, and compared with the lone runs of its requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from watched import WatchedRunner

from octavo.core.admission import Limits
from octavo.core.block_pool import BlockPool
from octavo.core.check import check
from octavo.core.engine import Engine
from octavo.core.scheduler import Scheduler
from octavo.sim.lone import LoneRun, lone_run
from octavo.sim.model import FakeModel
from octavo.sim.runner import SimRunner
from octavo.types import FinishReason, Output, Request, SamplingParams

EOS = 0


@dataclass
class Heard:
    """Everything that came out for one choice."""

    tokens: list[int] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    first_step: int | None = None  # number of Engine.step() calls before its first token

    @property
    def final(self) -> Output | None:
        return self.outputs[-1] if self.outputs and self.outputs[-1].finish is not None else None


class Trial:
    """Small by default, so that everything interesting happens soon. `watch` runs every check after each operation."""

    def __init__(
        self,
        *,
        rows: int = 8,
        blocks: int = 64,
        block_size: int = 16,
        chunk: int = 64,
        max_len: int = 256,
        vocab: int = 50,
        queue: int = 10_000,
        watermark: int = 1,
        depth: int = 1,
        eos_rate: float = 0.0,
        caching: bool = True,
        watch: bool = True,
    ) -> None:
        self.model = FakeModel(vocab, EOS, eos_rate)
        self.limits = Limits(rows, chunk, max_len, vocab, queue, watermark)
        self.pool = BlockPool(blocks, block_size, caching=caching)
        self.scheduler = Scheduler(self.pool, self.limits, [EOS])
        sim = SimRunner(self.model, rows=rows, blocks=blocks, block_size=block_size, depth=depth)
        self.runner = WatchedRunner(sim, self.scheduler)
        self.engine = Engine(self.scheduler, self.runner, debug=True)
        self.requests: dict[str, Request] = {}
        self.heard: dict[tuple[str, int], Heard] = {}
        self.steps = 0
        self._watch = watch

    # --- operations, each followed by every check ---

    def add(self, request: Request, *, accepted: bool = False) -> Request:
        self.engine.add(request, accepted=accepted)
        self.requests[request.id] = request
        for i in range(request.params.n):
            self.heard[request.id, request.choice + i] = Heard()
        self.check()
        return request

    def ask(
        self, prompt: list[int], *, id: str | None = None, seed: int = 7, priority: int = 0, **params: object
    ) -> Request:
        """add() with the usual fields filled in; greedy unless `temperature` is given."""
        params = {"temperature": 0.0, **params}
        name = id or f"r{len(self.requests)}"
        chosen = SamplingParams(**params)  # type: ignore[arg-type]
        return self.add(Request(id=name, prompt=prompt, params=chosen, seed=seed, priority=priority))

    def abort(self, request_id: str, choice: int | None = None) -> None:
        self.engine.abort(request_id, choice)
        self.check()

    def step(self) -> list[Output]:
        planned = len(self.runner.plans)
        stuck = self.scheduler.unfinished and self.runner.in_flight == 0
        outputs = self.engine.step()
        assert not stuck or len(self.runner.plans) > planned, "there is work, nothing is in flight, and no plan"
        for output in outputs:
            heard = self.heard[output.request_id, output.choice]
            assert heard.final is None, f"{output} follows the final event of its choice"
            if heard.first_step is None and output.tokens:
                heard.first_step = self.steps
            heard.tokens += output.tokens
            heard.outputs.append(output)
        self.steps += 1
        self.check()
        return outputs

    def step_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(500):
            if condition():
                return
            self.step()
        raise AssertionError("what the test waits for does not happen")

    def drain(self) -> None:
        """Step until idle, within a bound on the number of steps that any livelock exceeds."""
        bound = (
            self.steps
            + 100
            + self.runner.depth
            * sum(
                4 * request.params.n * (self.limits.max_len + len(request.prompt) // self.limits.chunk)
                for request in self.requests.values()
            )
        )
        while not self.engine.idle:
            self.step()
            assert self.steps < bound, "no end in sight: a livelock"
        self.step()  # finals of what was aborted last
        assert self.pool.free == self.pool.total, "blocks leaked"
        assert self.scheduler.rows == [None] * self.limits.rows, "rows leaked"

    def check(self) -> None:
        if self._watch:
            check(self.scheduler)
            self.runner.check()

    # --- judgement ---

    def lone(self, request: Request, choice: int = 0) -> LoneRun:
        max_len = min(self.limits.max_len, self.pool.total * self.pool.block_size + 1)
        return lone_run(request, self.model, max_len=max_len, eos_ids=[EOS], choice=choice)

    def verify(self, requests: Iterable[Request] | None = None) -> None:
        """Every choice had exactly one final event, and the tokens of its lone run (or, aborted, their start)."""
        for request in self.requests.values() if requests is None else requests:
            for i in range(request.params.n):
                self._verify_choice(request, i)

    def _verify_choice(self, request: Request, i: int) -> None:
        heard = self.heard[request.id, request.choice + i]
        final, lone = heard.final, self.lone(request, i)
        where = f"choice {i} of {request}"
        assert final is not None, f"no final event: {where}"
        if final.finish is FinishReason.ABORT:
            assert heard.tokens == lone.tokens[: len(heard.tokens)], f"wrong tokens before the abort: {where}"
        else:
            assert heard.tokens == lone.tokens, f"tokens differ from the lone run: {where}"
            assert (final.finish, final.stop_token) == (lone.finish, lone.stop_token), where
        usage = final.usage
        assert usage is not None, f"no usage: {where}"
        assert usage.prompt_tokens == len(request.prompt)
        stop = final.stop_token is not None
        assert usage.completion_tokens == len(request.generated) + len(heard.tokens) + stop
        assert 0 <= usage.cached_tokens < len(request.prompt)
        assert usage.cached_tokens % self.pool.block_size == 0
        with_usage = [index for index, output in enumerate(heard.outputs) if output.usage is not None]
        assert with_usage == sorted({0, len(heard.outputs) - 1}), f"usage belongs to first and final: {where}"
