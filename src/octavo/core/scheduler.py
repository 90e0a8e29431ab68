"""Scheduler: the four operations that everything else is made of. Pure: numbers in, plans and outputs out.

Who holds what lives in `roster.py`, the decision of a step in `planning.py`, what came of it in `committing.py`,
and what a request must satisfy in `admission.py`. It does not know how many steps are in flight;
`Sequence.in_flight` carries that.
"""

from __future__ import annotations

from collections.abc import Iterable

from octavo.core.admission import Limits, sequences_for
from octavo.core.block_pool import BlockPool
from octavo.core.committing import commit_step
from octavo.core.plan import StepPlan, StepResult
from octavo.core.planning import plan_step
from octavo.core.roster import Counters, Roster
from octavo.core.sequence import Sequence
from octavo.errors import QueueFull
from octavo.types import Output, Request


class Scheduler:
    """add, plan, commit, abort. `eos_ids` end any sequence that does not ask to ignore them."""

    def __init__(self, pool: BlockPool, limits: Limits, eos_ids: Iterable[int] = ()) -> None:
        self._roster = Roster(pool, limits)
        self._eos_ids = frozenset(eos_ids)
        self._arrivals = 0
        self._step = 0

    # --- the four operations ---

    def add(self, request: Request, *, accepted: bool = False) -> None:
        """Queue a request. InvalidRequest if it could never be served, QueueFull if too many wait. One that was
        `accepted` already (by an engine that died, or while this one loaded) is not turned away by the queue."""
        roster = self._roster
        if request.id in roster.live:
            raise ValueError(f"request id {request.id!r} is in use")
        if not accepted and len(roster.waiting) >= roster.limits.queue:
            raise QueueFull(len(roster.waiting), roster.limits.queue)
        roster.enter(sequences_for(request, roster.limits, roster.pool, self._eos_ids, self._arrivals))
        self._arrivals += 1

    def plan(self) -> StepPlan | None:
        """Decide one step, or None when nothing can run until a step in flight commits (or at all)."""
        plan = plan_step(self._roster, self._step)
        self._step += plan is not None
        return plan

    def commit(self, plan: StepPlan, result: StepResult) -> list[Output]:
        """Fold a finished step back. Final events of aborted sequences come along."""
        return self.take_finals() + commit_step(self._roster, plan, result)

    def abort(self, request_id: str, choice: int | None = None) -> None:
        """End a request (or one choice of it) in whatever state it is. Unknown or ended ids are no error."""
        for sequence in list(self._roster.live.get(request_id, ())):
            if choice is None or sequence.choice == choice:
                self._roster.abort(sequence)

    # --- what others read ---

    @property
    def pool(self) -> BlockPool:
        return self._roster.pool

    @property
    def limits(self) -> Limits:
        return self._roster.limits

    @property
    def counters(self) -> Counters:
        return self._roster.counters

    @property
    def waiting(self) -> list[Sequence]:
        """In the order in which they will be admitted."""
        return self._roster.waiting

    @property
    def running(self) -> list[Sequence]:
        """Oldest first; the last is preempted first."""
        return self._roster.running

    @property
    def rows(self) -> list[Sequence | None]:
        """Who holds each row, ended sequences included that a launched step may still touch."""
        return self._roster.rows

    @property
    def unfinished(self) -> bool:
        return bool(self._roster.live)

    @property
    def requests(self) -> int:
        """Accepted requests without all their final events."""
        return len(self._roster.live)

    def take_finals(self) -> list[Output]:
        """Final events that no commit has delivered (aborted sequences)."""
        return self._roster.take_finals()

    def occupancy(self) -> tuple[int, int]:
        """(useful, allocated) token slots; see Roster.occupancy."""
        return self._roster.occupancy()
