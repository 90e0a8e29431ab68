"""A runner that watches what the scheduler promises: it passes plans to a SimRunner and holds the invariants
S6-S10 and S16 (limits, continuity, sampling, publish after compute, no release under a launched step).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from octavo.core.plan import Pending, StepPlan, StepResult
from octavo.core.scheduler import Scheduler
from octavo.core.sequence import Sequence
from octavo.sim.runner import SimRunner


@dataclass
class Launched:
    """What a step in flight may touch: for each of its rows and forks, the sequence and its table at launch."""

    plan: StepPlan
    tables: list[tuple[Sequence, list[int]]]


class WatchedPending:
    def __init__(self, watch: WatchedRunner, pending: Pending) -> None:
        self._watch = watch
        self._pending = pending

    def wait(self) -> StepResult:
        self._watch.committed()
        return self._pending.wait()


class WatchedRunner:
    def __init__(self, runner: SimRunner, scheduler: Scheduler) -> None:
        self.depth = runner.depth
        self.plans: list[StepPlan] = []
        self.max_in_flight = 0
        self._runner = runner
        self._scheduler = scheduler
        self._in_flight: deque[Launched] = deque()
        self._filled = [0] * scheduler.pool.total  # slots of a block that committed steps have written
        self._next_start: dict[Sequence, int] = {}

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def launch(self, plan: StepPlan) -> Pending:
        self._check_plan(plan)
        copied = {dst for _, dst in plan.copies}
        for row in plan.rows:
            for block in row.new_blocks:
                self._filled[block] = 0
            assert (row.table_start * self._scheduler.pool.block_size < row.start) == bool(
                copied & set(row.new_blocks)
            ), "a table entry is replaced exactly at a copy"
        self.plans.append(plan)
        touched = [
            (sequence, list(sequence.blocks))
            for row in plan.rows
            for sequence in (self._sequence(row.row), *map(self._sequence, row.forks))
        ]
        self._in_flight.append(Launched(plan, touched))
        self.max_in_flight = max(self.max_in_flight, len(self._in_flight))
        return WatchedPending(self, self._runner.launch(plan))

    def committed(self) -> None:
        """The oldest step is waited for: what it wrote exists from now on."""
        launched = self._in_flight.popleft()
        tables = {sequence.row: table for sequence, table in launched.tables}
        size = self._scheduler.pool.block_size
        for row in launched.plan.rows:
            for position in range(row.start, row.start + row.count):
                self._filled[tables[row.row][position // size]] = position % size + 1

    def check(self) -> None:
        """Call after every operation."""
        pool = self._scheduler.pool
        for launched in self._in_flight:
            for sequence, table in launched.tables:
                assert sequence.row >= 0, "a row was given back under a launched step"
                for block in table:
                    assert pool.refs(block) > 0, f"block {block} was released under a launched step"
        for block in range(pool.total):
            if pool._key[block] is not None:
                assert self._filled[block] == pool.block_size, f"block {block} is findable before it is computed"

    def _sequence(self, row: int) -> Sequence:
        sequence = self._scheduler.rows[row]
        assert sequence is not None, f"row {row} is planned but nobody holds it"
        return sequence

    def _check_plan(self, plan: StepPlan) -> None:
        limits, pool = self._scheduler.limits, self._scheduler.pool
        assert plan.rows, "a plan that computes nothing"
        assert len(plan.rows) <= limits.rows
        assert sum(row.count for row in plan.rows if row.count > 1) <= limits.chunk, "a step exceeds its chunk"
        fresh = [block for row in plan.rows for block in row.new_blocks]
        assert len(fresh) == len(set(fresh)), "two rows were given one block"
        for block in fresh:
            assert pool._key[block] is None, f"block {block} is published and about to be written"
        started = {admit.row: admit.computed for admit in plan.admit}
        for row in plan.rows:
            sequence = self._sequence(row.row)
            expected = started.get(row.row, self._next_start.get(sequence))
            assert row.start == expected, f"row {row.row} starts at {row.start}, its tokens continue at {expected}"
            end = row.start + row.count
            self._next_start[sequence] = end
            assert row.sample == (end == len(sequence.tokens) + sequence.sampling - row.sample), "sample is misplaced"
            assert end < sequence.prompt_tokens + sequence.max_new, "the last token is fed back"
            for fork in row.forks:
                self._next_start[self._sequence(fork)] = end
