"""The decision of one step: who computes how many tokens, and which blocks that takes.

It knows no prefill and no decode: tokens are handed out until every sequence has caught up with its known
tokens. First those running get theirs, oldest first, preempting the youngest where blocks are short; then the
queue is admitted from its head.
"""

from __future__ import annotations

from octavo.core.plan import Admit, Row, StepPlan
from octavo.core.roster import Roster
from octavo.core.sequence import Sequence


def plan_step(roster: Roster, step: int) -> StepPlan | None:
    """Decide step number `step`. None when nothing can run until a step in flight commits (or at all)."""
    planning = _Planning(roster, step)
    enough = planning.serve_running()
    if enough and roster.waiting:
        planning.admit_waiting()
    if not planning.plan.rows:
        return None
    planning.plan.retire = roster.take_retired()
    return planning.plan


class _Planning:
    """A step's plan in the making. `spare` prompt tokens (or tokens to recompute) may still be planned."""

    def __init__(self, roster: Roster, step: int) -> None:
        self.plan = StepPlan(step, [], [], [], [], 0)
        self._roster = roster
        self._pool = roster.pool
        self._size = roster.pool.block_size
        self._spare = roster.limits.chunk
        self._forked: list[Sequence] = []  # siblings forked by a row of this plan; they are planned from the next on

    # --- those running ---

    def serve_running(self) -> bool:
        """Plan every running sequence's next tokens. False if blocks were short, so that nobody may be admitted."""
        running, pool, size = self._roster.running, self._pool, self._size
        enough = True
        index = 0
        while index < len(running):  # preemption shortens the list at its end
            sequence = running[index]
            index += 1
            count = len(sequence.tokens) + sequence.sampling - sequence.computed
            if count != 1:
                count = min(count, self._spare)
                self._spare -= count
            if count == 0 or sequence.generated + sequence.sampling >= sequence.max_new:
                continue
            wanted = -(-(sequence.computed + count) // size) - len(sequence.blocks)
            copying = self._must_copy(sequence)
            if (wanted or copying) and wanted + copying > pool.free:
                enough = False
                if not self._make_room(sequence, wanted):
                    break
                copying = self._must_copy(sequence)
            self._plan_row(sequence, count, wanted, copying)
        self._run_forked()
        return enough

    def _must_copy(self, sequence: Sequence) -> bool:
        """The next token falls into a partly filled block that others share: it must be copied before writing."""
        return sequence.computed % self._size != 0 and self._pool.refs(sequence.blocks[-1]) > 1

    def _make_room(self, sequence: Sequence, wanted: int) -> bool:
        """Preempt the youngest until `sequence` can have the blocks it needs. False when that must wait for
        launched steps, which may still touch blocks about to come free, or when it was the youngest itself."""
        roster = self._roster
        while wanted + self._must_copy(sequence) > self._pool.free:
            victim = roster.running[-1]
            if victim.in_flight or roster.lingering:
                return False
            roster.preempt(victim)
            if victim is sequence:
                return False
        return True

    # --- those waiting ---

    def admit_waiting(self) -> None:
        """Admit from the head of the queue while rows, blocks and prompt tokens are left for this step.

        Where prompt tokens are left, all running prompts are complete: no block is promised to anyone. One for
        each running sequence's growth (or the watermark) is left free; admission is optimistic beyond that, and
        preemption mends it.
        """
        roster, pool, size = self._roster, self._pool, self._size
        while roster.waiting and roster.free_rows and self._spare:
            sequence = roster.waiting[0]
            known = len(sequence.tokens)
            hit = pool.match(sequence.request.salt, sequence.tokens, known - 1)
            needed = -(-known // size) - len(hit)
            growth = max(roster.limits.watermark, len(roster.running)) if roster.running else 0
            if pool.free - pool.idle(hit) < needed + growth:
                return
            del roster.waiting[0]
            self._admit(sequence, hit)
            count = min(known - sequence.computed, self._spare)
            self._spare -= count
            wanted = -(-(sequence.computed + count) // size) - len(hit)
            self._plan_row(sequence, count, wanted, copying=False)
            self._run_forked()

    def _admit(self, sequence: Sequence, hit: list[int]) -> None:
        pool, counters = self._pool, self._roster.counters
        pool.acquire(hit)
        sequence.blocks = list(hit)
        sequence.prefix = [pool.node(block) for block in hit]
        sequence.computed = len(hit) * self._size
        if sequence.preemptions == 0:
            sequence.hit = min(sequence.computed, (sequence.prompt_tokens - 1) // self._size * self._size)
            counters.hit_tokens += sequence.hit
            counters.prompt_tokens += sequence.prompt_tokens
        self._take_row(sequence)
        self._roster.run(sequence)

    # --- what goes into the plan ---

    def _plan_row(self, sequence: Sequence, count: int, wanted: int, copying: bool) -> None:
        """Compute `count` tokens of `sequence`. The blocks needed are known to be free."""
        table_start = len(sequence.blocks)
        new_blocks: list[int] = []
        if wanted or copying:
            allocated = self._pool.allocate(wanted + copying)
            assert allocated is not None, "a plan counted on blocks that are not free"
            new_blocks = allocated
            if copying:
                # The shared block may come free at once: plans run in order, so whoever gets it writes after the copy.
                table_start -= 1
                shared = sequence.blocks.pop()
                self.plan.copies.append((shared, new_blocks[0]))
                self._pool.release([shared])
            sequence.blocks += new_blocks
        start = sequence.computed
        sequence.computed = end = start + count
        sequence.in_flight += 1
        sample = end == len(sequence.tokens) + sequence.sampling
        row = Row(sequence.row, start, count, sample, table_start, new_blocks, [])
        self.plan.rows.append(row)
        self.plan.tokens += count
        if sample:
            sequence.sampling += 1
            if sequence.siblings:
                self._fork(row, sequence)

    def _fork(self, row: Row, parent: Sequence) -> None:
        """The parent's prompt is about to be complete: let its siblings share its blocks, the partly filled last
        one included, and draw their first tokens from the same logits. Those without a free row queue up."""
        for sibling in parent.siblings:
            if sibling.finished:
                continue
            if not self._roster.free_rows:
                self._roster.enqueue(sibling)
                continue
            sibling.computed = parent.computed
            sibling.blocks = list(parent.blocks)
            self._pool.acquire(sibling.blocks)
            sibling.hit = parent.hit
            sibling.in_flight = sibling.sampling = 1
            self._take_row(sibling)
            row.forks.append(sibling.row)
            self._forked.append(sibling)
        parent.siblings = []

    def _run_forked(self) -> None:
        for sibling in self._forked:
            self._roster.run(sibling)
        self._forked.clear()

    def _take_row(self, sequence: Sequence) -> None:
        self._roster.take_row(sequence)
        sequence.tokens = list(sequence.tokens)  # its own from now on: choices that wait share a list
        request = sequence.request
        self.plan.admit.append(
            Admit(
                sequence.row,
                list(sequence.tokens),
                sequence.prompt_tokens,
                sequence.computed,
                list(sequence.blocks),
                request.params,
                request.seed,
                sequence.choice,
            )
        )
