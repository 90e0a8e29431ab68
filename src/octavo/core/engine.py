"""Engine: a scheduler and a runner, one step at a time. The same object runs in the server's child process, in
the offline API, in tests and in the simulator; only runner and clock differ.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import msgspec

from octavo.core.check import check
from octavo.core.plan import Pending, Runner, StepPlan
from octavo.core.scheduler import Scheduler
from octavo.types import Output, Request


class Stats(msgspec.Struct, array_like=True):
    """A snapshot of the engine. Gauges first, then totals since the start.

    The time-averaged share of useful KV memory over any interval is the difference of `useful_slot_seconds`
    divided by the difference of `allocated_slot_seconds`. `compute_seconds` were spent in the model's forward passes.
    """

    running: int = 0
    waiting: int = 0
    blocks_total: int = 0
    blocks_used: int = 0
    blocks_cached: int = 0
    useful_slots: int = 0
    allocated_slots: int = 0
    useful_slot_seconds: float = 0.0
    allocated_slot_seconds: float = 0.0
    steps: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    evictions: int = 0
    finished: int = 0
    aborted: int = 0
    compute_seconds: float = 0.0


class Engine:
    """`debug` checks every invariant when idle."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        *,
        clock: Callable[[], float] = time.perf_counter,
        debug: bool = False,
    ) -> None:
        self.scheduler = scheduler
        self._runner = runner
        self._clock = clock
        self._debug = debug
        self._pending: deque[tuple[StepPlan, Pending]] = deque()
        self._slots = (0, 0)
        self._slots_since = clock()
        self._useful_slot_seconds = 0.0
        self._allocated_slot_seconds = 0.0
        self._compute_seconds = 0.0

    @property
    def idle(self) -> bool:
        """Nothing to do until the next add(): no unfinished request, no launched step."""
        return not self.scheduler.unfinished and not self._pending

    def add(self, request: Request, *, accepted: bool = False) -> None:
        """Accept a request. Raises InvalidRequest or QueueFull; an accepted one ends with final Outputs.
        `accepted`: it was taken before, so QueueFull is not an answer any more."""
        self.scheduler.add(request, accepted=accepted)

    def abort(self, request_id: str, choice: int | None = None) -> None:
        """End a request or one of its choices; its final Output comes with the next step()."""
        self.scheduler.abort(request_id, choice)

    def step(self) -> list[Output]:
        """Launch up to `runner.depth` plans, wait for the oldest, return what it brought."""
        scheduler = self.scheduler
        while len(self._pending) < self._runner.depth and (plan := scheduler.plan()) is not None:
            self._account()
            self._pending.append((plan, self._runner.launch(plan)))
        if not self._pending:
            outputs = scheduler.take_finals()
        else:
            plan, pending = self._pending.popleft()
            result = pending.wait()
            self._compute_seconds += result.compute_s
            outputs = scheduler.commit(plan, result)
        if self.idle:
            self._account()
            if self._debug:
                check(scheduler)
        return outputs

    def stats(self) -> Stats:
        scheduler = self.scheduler
        pool = scheduler.pool
        counters = scheduler.counters
        useful, allocated = scheduler.occupancy()
        return Stats(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            blocks_total=pool.total,
            blocks_used=pool.used,
            blocks_cached=pool.cached,
            useful_slots=useful,
            allocated_slots=allocated,
            useful_slot_seconds=self._useful_slot_seconds,
            allocated_slot_seconds=self._allocated_slot_seconds,
            steps=counters.steps,
            prompt_tokens=counters.prompt_tokens,
            hit_tokens=counters.hit_tokens,
            generated_tokens=counters.generated_tokens,
            preemptions=counters.preemptions,
            evictions=pool.evictions,
            finished=counters.finished,
            aborted=counters.aborted,
            compute_seconds=self._compute_seconds,
        )

    def _account(self) -> None:
        """Add the slots held since the last plan to the slot-seconds, and note what is held from now on."""
        now = self._clock()
        held_s = now - self._slots_since
        self._useful_slot_seconds += self._slots[0] * held_s
        self._allocated_slot_seconds += self._slots[1] * held_s
        self._slots = self.scheduler.occupancy()
        self._slots_since = now
