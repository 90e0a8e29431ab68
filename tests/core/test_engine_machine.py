"""Scheduler and engine under random operations: every invariant after every one of them, and at the end exactly
one final event and the tokens of the lone run for each choice, everything free, within a bounded number of steps.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from trial import Trial

from octavo.errors import InvalidRequest, QueueFull
from octavo.types import Request, SamplingParams

VOCAB = 20
# Prompts are cuts of a few long texts, so that prefixes are shared at every length.
TEXTS = [[(7 * i * i + 3 * i + text) % VOCAB for i in range(120)] for text in range(3)]


class EngineMachine(RuleBasedStateMachine):
    @initialize(
        depth=st.sampled_from([1, 2]),
        block_size=st.sampled_from([8, 16, 32]),
        pool_tokens=st.sampled_from([64, 96, 160, 512]),
        rows=st.sampled_from([1, 3, 8]),
        chunk=st.sampled_from([1, 5, 16, 64]),
        eos_rate=st.sampled_from([0.0, 0.1]),
        watermark=st.sampled_from([0, 1, 2]),
        caching=st.sampled_from([True, True, True, False]),
    )
    def start(
        self,
        depth: int,
        block_size: int,
        pool_tokens: int,
        rows: int,
        chunk: int,
        eos_rate: float,
        watermark: int,
        caching: bool,
    ) -> None:
        self.trial = Trial(
            depth=depth,
            block_size=block_size,
            blocks=pool_tokens // block_size,
            rows=rows,
            chunk=chunk,
            max_len=150,
            vocab=VOCAB,
            queue=6,
            watermark=watermark,
            eos_rate=eos_rate,
            caching=caching,
        )

    @rule(
        text=st.sampled_from(range(len(TEXTS))),
        cut=st.integers(1, 120),
        n=st.sampled_from([1, 1, 1, 2, 4, 9]),
        max_tokens=st.one_of(st.none(), st.integers(1, 40)),
        temperature=st.sampled_from([0.0, 1.0]),
        seed=st.integers(0, 3),
        priority=st.sampled_from([0, 0, 0, 1, -1]),
        generated=st.lists(st.integers(1, VOCAB - 1), max_size=20),
        salt=st.sampled_from(["", "", "tenant"]),
        ignore_eos=st.booleans(),
        stop_token_ids=st.sampled_from([(), (), (3,)]),
    )
    def add(
        self,
        text: int,
        cut: int,
        n: int,
        max_tokens: int | None,
        temperature: float,
        seed: int,
        priority: int,
        generated: list[int],
        salt: str,
        ignore_eos: bool,
        stop_token_ids: tuple[int, ...],
    ) -> None:
        trial = self.trial
        params = SamplingParams(
            max_tokens=max_tokens,
            temperature=temperature,
            n=n,
            ignore_eos=ignore_eos,
            stop_token_ids=stop_token_ids,
        )
        request = Request(
            id=f"r{len(trial.requests)}",
            prompt=TEXTS[text][:cut],
            params=params,
            seed=seed,
            generated=generated if n == 1 else [],
            choice=seed if n == 1 else 0,
            salt=salt,
            priority=priority,
        )
        waiting = len(trial.scheduler.waiting)
        try:
            trial.add(request)
        except QueueFull:
            assert waiting >= trial.limits.queue
        except InvalidRequest:
            context = min(150, trial.pool.total * trial.pool.block_size + 1)
            wanted = 1 if max_tokens is None else max_tokens
            assert cut + wanted > context or len(request.generated) >= (max_tokens or context - cut)

    @rule(count=st.integers(1, 12))
    def steps(self, count: int) -> None:
        for _ in range(count):
            self.trial.step()

    @precondition(lambda self: self.trial.requests)
    @rule(data=st.data())
    def abort_request(self, data: st.DataObject) -> None:
        self.trial.abort(data.draw(st.sampled_from(sorted(self.trial.requests))))

    @precondition(lambda self: self.trial.heard)
    @rule(data=st.data())
    def abort_choice(self, data: st.DataObject) -> None:
        self.trial.abort(*data.draw(st.sampled_from(sorted(self.trial.heard))))

    def teardown(self) -> None:
        if hasattr(self, "trial"):
            self.trial.drain()
            self.trial.verify()


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(
    max_examples=150, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
