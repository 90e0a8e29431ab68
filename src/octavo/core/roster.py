"""Roster: who waits, who runs, and who holds which row and which blocks.

Owns the queues and the rows, and moves sequences between them; every release of blocks and rows goes through
here. It decides nothing: what runs next is planning's business, what came of it is committing's.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

from octavo.core.admission import Limits
from octavo.core.block_pool import BlockPool
from octavo.core.sequence import Sequence
from octavo.types import FinishReason, Output


@dataclass(slots=True)
class Counters:
    """Totals since the start. Read by Engine.stats()."""

    steps: int = 0
    prompt_tokens: int = 0  # of sequences admitted for the first time
    hit_tokens: int = 0  # of these, found in the prefix cache
    generated_tokens: int = 0
    preemptions: int = 0
    finished: int = 0
    aborted: int = 0


class Roster:
    """`waiting` and `running` are sorted by Sequence.order; `rows` also lists ended sequences that a launched step
    may still touch."""

    def __init__(self, pool: BlockPool, limits: Limits) -> None:
        self.pool = pool
        self.limits = limits
        self.counters = Counters()
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.rows: list[Sequence | None] = [None] * limits.rows
        self.live: dict[str, list[Sequence]] = {}  # choices of each request that have had no final event
        self._free_rows = list(range(limits.rows - 1, -1, -1))
        self._retired: list[int] = []
        self._finals: list[Output] = []

    # --- coming and going ---

    def enter(self, choices: list[Sequence]) -> None:
        """A request's choices, of which the first computes the prompt for all."""
        self.live[choices[0].request.id] = list(choices)
        choices[0].siblings = choices[1:]
        self.enqueue(choices[0])

    def enqueue(self, sequence: Sequence) -> None:
        insort(self.waiting, sequence, key=_order)

    def run(self, sequence: Sequence) -> None:
        """`sequence` has a row and is planned from now on."""
        insort(self.running, sequence, key=_order)

    def preempt(self, sequence: Sequence) -> None:
        """Take everything back; it starts over later, from whatever of its prefix is still cached then."""
        assert sequence.in_flight == 0, "a sequence is preempted while a launched step may touch its blocks"
        self.running.remove(sequence)
        self._give_back(sequence)
        sequence.computed = 0
        sequence.prefix = []
        sequence.preemptions += 1
        self.counters.preemptions += 1
        self.enqueue(sequence)

    def end(self, sequence: Sequence) -> None:
        """The sequence has had its final event. Its blocks follow once no launched step can touch them."""
        sequence.finished = True
        if sequence.row >= 0:
            self.running.remove(sequence)
        choices = self.live[sequence.request.id]
        choices.remove(sequence)
        if not choices:
            del self.live[sequence.request.id]

    def settle(self, ended: Sequence) -> None:
        """Take blocks and row of an ended sequence back, unless a launched step may touch them."""
        if ended.in_flight == 0 and ended.row >= 0:
            self._give_back(ended)

    def abort(self, sequence: Sequence) -> None:
        """End an unfinished sequence, wherever it is."""
        self._finals.append(
            Output(sequence.request.id, sequence.choice, [], finish=FinishReason.ABORT, usage=sequence.usage())
        )
        self.counters.aborted += 1
        self._leave_queue(sequence)
        self.end(sequence)
        self.settle(sequence)
        survivors = [sibling for sibling in sequence.siblings if not sibling.finished]
        sequence.siblings = []
        if survivors:  # the next choice computes the prompt in its place
            survivors[0].siblings = survivors[1:]
            self.enqueue(survivors[0])

    def take_finals(self) -> list[Output]:
        """Final events that no commit has delivered."""
        finals, self._finals = self._finals, []
        return finals

    # --- rows and blocks ---

    @property
    def free_rows(self) -> int:
        return len(self._free_rows)

    @property
    def lingering(self) -> bool:
        """Some rows are held by sequences that are not in `running`: ended, or forked in this very plan."""
        return len(self.rows) - len(self._free_rows) > len(self.running)

    def take_row(self, sequence: Sequence) -> None:
        sequence.row = self._free_rows.pop()
        self.rows[sequence.row] = sequence

    def take_retired(self) -> list[int]:
        """Rows given back since the last call. The runner must hear of them before they are used again."""
        retired, self._retired = self._retired, []
        return retired

    def occupancy(self) -> tuple[int, int]:
        """(useful, allocated) token slots: slots that hold a token's keys, and all slots of referenced blocks.

        A block shared by several sequences counts once, so only the unfilled tail of each distinct last
        block is subtracted.
        """
        size = self.pool.block_size
        allocated = self.pool.used * size
        tails = {s.blocks[-1]: len(s.blocks) * size - s.computed for s in self.rows if s is not None and s.blocks}
        return allocated - sum(tails.values()), allocated

    def _give_back(self, sequence: Sequence) -> None:
        self.pool.release(sequence.blocks)
        sequence.blocks = []
        self.rows[sequence.row] = None
        self._free_rows.append(sequence.row)
        self._retired.append(sequence.row)
        sequence.row = -1

    def _leave_queue(self, sequence: Sequence) -> None:
        index = bisect_left(self.waiting, sequence.order, key=_order)
        if index < len(self.waiting) and self.waiting[index] is sequence:
            del self.waiting[index]


def _order(sequence: Sequence) -> tuple[int, int, int]:
    return sequence.order
