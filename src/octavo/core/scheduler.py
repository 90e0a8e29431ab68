"""Scheduler: what runs next. Owns the queues, the rows and, through the pool, every block.

It knows no prefill and no decode: each step hands out tokens to compute until every sequence has caught up with
its known tokens. It does not know how many steps are in flight either; `Sequence.in_flight` carries that.
Admission rules live in `admission.py`, the consistency check in `check.py`.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass

from octavo.core.admission import Limits, sequences_for
from octavo.core.block_pool import BlockPool
from octavo.core.plan import Admit, Row, StepPlan, StepResult
from octavo.core.sequence import Sequence
from octavo.errors import QueueFull
from octavo.types import FinishReason, Output, Request, TokenLogprob


@dataclass(slots=True)
class Counters:
    """Totals since the start. Read by Engine.stats()."""

    steps: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    finished: int = 0
    aborted: int = 0


class Scheduler:
    """add, plan, commit, abort. `eos_ids` end any sequence that does not ask to ignore them."""

    def __init__(self, pool: BlockPool, limits: Limits, eos_ids: Iterable[int] = ()) -> None:
        self.pool = pool
        self.limits = limits
        self.counters = Counters()
        self.waiting: list[Sequence] = []  # sorted by Sequence.order
        self.running: list[Sequence] = []  # sorted by Sequence.order
        self.rows: list[Sequence | None] = [None] * limits.rows
        self._eos_ids = frozenset(eos_ids)
        self._live: dict[str, list[Sequence]] = {}  # unfinished choices of each request
        self._free_rows = list(range(limits.rows - 1, -1, -1))
        self._retire: list[int] = []  # rows given back since the last plan
        self._finals: list[Output] = []  # final events that no commit produced
        self._arrivals = 0
        self._step = 0

    # --- the four operations ---

    def add(self, request: Request, *, accepted: bool = False) -> None:
        """Queue a request. InvalidRequest if it could never be served, QueueFull if too many wait. One that was
        `accepted` already (by an engine that died, or while this one loaded) is not turned away by the queue."""
        if request.id in self._live:
            raise ValueError(f"request id {request.id!r} is in use")
        if not accepted and len(self.waiting) >= self.limits.queue:
            raise QueueFull(len(self.waiting), self.limits.queue)
        choices = sequences_for(request, self.limits, self.pool, self._eos_ids, self._arrivals)
        self._arrivals += 1
        self._live[request.id] = list(choices)
        first = choices[0]
        first.siblings = choices[1:]
        self._enqueue(first)

    def plan(self) -> StepPlan | None:
        """Decide one step, or None when nothing can run until a step in flight commits (or at all)."""
        plan = StepPlan(self._step, [], [], [], [], 0)
        spare, settled = self._plan_running(plan)
        if settled and self.waiting:
            self._plan_waiting(plan, spare)
        if not plan.rows:
            return None
        plan.retire, self._retire = self._retire, []
        self._step += 1
        return plan

    def commit(self, plan: StepPlan, result: StepResult) -> list[Output]:
        """Fold a finished step back: append tokens, publish full blocks, end what has ended."""
        outputs: list[Output] = self.take_finals()
        logprobs = result.logprobs or [None] * len(result.tokens)
        drawn = 0
        for row in plan.rows:
            sequence = self.rows[row.row]
            assert sequence is not None, f"row {row.row} was given away while a step was in flight"
            sequence.in_flight -= 1
            if row.sample:
                self._accept(sequence, result.tokens[drawn], logprobs[drawn], outputs)
                drawn += 1
            if (row.start + row.count) // self.pool.block_size > len(sequence.prefix):
                self._publish(sequence, row.start + row.count)
            for fork_row in row.forks:
                fork = self.rows[fork_row]
                assert fork is not None, f"row {fork_row} was given away while a step was in flight"
                fork.in_flight -= 1
                fork.prefix = list(sequence.prefix)
                self._accept(fork, result.tokens[drawn], logprobs[drawn], outputs)
                drawn += 1
                if fork.finished:
                    self._settle(fork)
            if sequence.finished:
                self._settle(sequence)
        self.counters.steps += 1
        return outputs

    def abort(self, request_id: str, choice: int | None = None) -> None:
        """End a request (or one choice of it) in whatever state it is. Unknown or ended ids are no error."""
        for sequence in list(self._live.get(request_id, ())):
            if choice is None or sequence.choice == choice:
                self._abort(sequence)

    # --- what others read ---

    @property
    def unfinished(self) -> bool:
        return bool(self._live)

    @property
    def requests(self) -> int:
        """Accepted requests without all their final events."""
        return len(self._live)

    def take_finals(self) -> list[Output]:
        """Final events that no commit has delivered (aborted sequences)."""
        finals, self._finals = self._finals, []
        return finals

    def occupancy(self) -> tuple[int, int]:
        """(useful, allocated) token slots: slots that hold a token's keys, and all slots of referenced blocks.

        A block shared by several sequences counts once, so only the unfilled tail of each distinct last
        block is subtracted.
        """
        size = self.pool.block_size
        allocated = self.pool.used * size
        tails = {s.blocks[-1]: len(s.blocks) * size - s.computed for s in self.rows if s is not None and s.blocks}
        return allocated - sum(tails.values()), allocated

    # --- planning ---

    def _plan_running(self, plan: StepPlan) -> tuple[int, bool]:
        """Give every running sequence its next tokens, oldest first. Returns the prompt tokens still to spare
        in this step, and whether all were served without taking blocks from anyone."""
        running = self.running
        pool = self.pool
        size = pool.block_size
        spare = self.limits.chunk
        forked: list[Sequence] = []
        settled = True
        index = 0
        while index < len(running):
            sequence = running[index]
            index += 1
            missing = len(sequence.tokens) + sequence.sampling - sequence.computed
            if missing != 1:
                missing = min(missing, spare)
                spare -= missing
            if missing <= 0 or sequence.generated + sequence.sampling >= sequence.max_new:
                continue
            end = sequence.computed + missing
            copying = sequence.computed % size and pool.refs(sequence.blocks[-1]) > 1
            wanted = -(-end // size) - len(sequence.blocks)
            if wanted or copying:
                needed = wanted + bool(copying)
                if needed > pool.free:
                    settled = False
                    if not self._make_room(needed, sequence):
                        break
            self._plan_row(plan, sequence, missing, wanted, bool(copying), forked)
        for fork in forked:
            insort(running, fork, key=_order)
        return spare, settled

    def _make_room(self, needed: int, sequence: Sequence) -> bool:
        """Preempt the youngest until `needed` blocks are free. False when that must wait for steps in flight,
        or when `sequence` itself was the youngest."""
        while needed > self.pool.free:
            victim = self.running[-1]
            if victim.in_flight or len(self.rows) - len(self._free_rows) > len(self.running):
                return False  # a launched step may still touch blocks that are about to come free
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _plan_waiting(self, plan: StepPlan, spare: int) -> None:
        """Admit from the head of the queue while rows, blocks and prompt tokens are left for this step."""
        size = self.pool.block_size
        forked: list[Sequence] = []
        promised = sum(-(-len(s.tokens) // size) - len(s.blocks) for s in self.running)
        while self.waiting and self._free_rows and spare > 0:
            sequence = self.waiting[0]
            known = len(sequence.tokens)
            hit = self.pool.match(sequence.request.salt, sequence.tokens, known - 1)
            needed = -(-known // size) - len(hit)
            reserve = max(self.limits.watermark, len(self.running)) if self.running else 0
            if self.pool.free - self.pool.idle(hit) - promised < needed + reserve:
                break
            del self.waiting[0]
            self._admit(plan, sequence, hit)
            count = min(known - sequence.computed, spare)
            spare -= count
            wanted = -(-(sequence.computed + count) // size) - len(sequence.blocks)
            promised += needed - wanted
            insort(self.running, sequence, key=_order)
            self._plan_row(plan, sequence, count, wanted, False, forked)
        for fork in forked:
            insort(self.running, fork, key=_order)

    def _plan_row(
        self,
        plan: StepPlan,
        sequence: Sequence,
        count: int,
        wanted: int,
        copying: bool,
        forked: list[Sequence],
    ) -> None:
        """Write `count` tokens of `sequence` into the plan. The blocks needed are known to be free."""
        blocks = sequence.blocks
        table_start = len(blocks)
        new_blocks: list[int] = []
        if wanted or copying:
            allocated = self.pool.allocate(wanted + copying)
            assert allocated is not None, "a plan counted on blocks that are not free"
            new_blocks = allocated
            if copying:
                table_start -= 1
                shared = blocks.pop()
                plan.copies.append((shared, new_blocks[0]))
                self.pool.release([shared])
            blocks += new_blocks
        start = sequence.computed
        sequence.computed = start + count
        sequence.in_flight += 1
        plan.tokens += count
        sample = sequence.computed == len(sequence.tokens) + sequence.sampling
        row = Row(sequence.row, start, count, sample, table_start, new_blocks, [])
        plan.rows.append(row)
        if sample:
            sequence.sampling += 1
            if sequence.siblings:
                self._fork(plan, row, sequence, forked)

    def _fork(self, plan: StepPlan, row: Row, parent: Sequence, forked: list[Sequence]) -> None:
        """The parent's prompt is about to be complete: let its siblings share its blocks, the partly filled last
        one included, and draw their first tokens from the same logits. Those without a free row queue up."""
        for sibling in parent.siblings:
            if sibling.finished:
                continue
            if not self._free_rows:
                self._enqueue(sibling)
                continue
            sibling.computed = parent.computed
            sibling.blocks = list(parent.blocks)
            self.pool.acquire(sibling.blocks)
            sibling.hit = parent.hit
            sibling.in_flight = sibling.sampling = 1
            self._take_row(plan, sibling)
            row.forks.append(sibling.row)
            forked.append(sibling)
        parent.siblings = []

    def _admit(self, plan: StepPlan, sequence: Sequence, hit: list[int]) -> None:
        self.pool.acquire(hit)
        sequence.blocks = hit
        sequence.prefix = [self.pool.node(block) for block in hit]
        sequence.computed = len(hit) * self.pool.block_size
        if sequence.preemptions == 0:
            size = self.pool.block_size
            sequence.hit = min(sequence.computed, (sequence.prompt_tokens - 1) // size * size)
            self.counters.hit_tokens += sequence.hit
            self.counters.prompt_tokens += sequence.prompt_tokens
        self._take_row(plan, sequence)

    def _take_row(self, plan: StepPlan, sequence: Sequence) -> None:
        sequence.row = row = self._free_rows.pop()
        self.rows[row] = sequence
        request = sequence.request
        plan.admit.append(
            Admit(
                row,
                list(sequence.tokens),
                sequence.prompt_tokens,
                sequence.computed,
                list(sequence.blocks),
                request.params,
                request.seed,
                sequence.choice,
            )
        )

    def _preempt(self, sequence: Sequence) -> None:
        """Give everything back and start over later, from whatever of the prefix is still cached then."""
        assert sequence.in_flight == 0, "a sequence is preempted while a launched step may touch its blocks"
        self.running.remove(sequence)
        self._give_back(sequence)
        sequence.computed = 0
        sequence.prefix = []
        sequence.preemptions += 1
        self.counters.preemptions += 1
        self._enqueue(sequence)

    # --- committing ---

    def _accept(self, sequence: Sequence, token: int, logprob: TokenLogprob | None, outputs: list[Output]) -> None:
        """Take one drawn token. A sequence that has ended meanwhile drops it."""
        sequence.sampling -= 1
        if sequence.finished:
            return
        sequence.tokens.append(token)
        self.counters.generated_tokens += 1
        if token in sequence.stop_ids:
            output = Output(sequence.request.id, sequence.choice, [], finish=FinishReason.STOP, stop_token=token)
        else:
            output = Output(sequence.request.id, sequence.choice, [token])
            if logprob is not None:
                output.logprobs = [logprob]
            if sequence.generated >= sequence.max_new:
                output.finish = FinishReason.LENGTH
        outputs.append(output)
        if output.finish is not None or sequence.generated == len(sequence.request.generated) + 1:
            output.usage = sequence.usage()
        if output.finish is not None:
            self.counters.finished += 1
            self._end(sequence)

    def _publish(self, sequence: Sequence, computed: int) -> None:
        """Make the blocks findable whose contents exist now: those full within the committed `computed`.

        A sequence that ended early may have computed a token that it dropped; that token is in no block's key.
        """
        if not self.pool.caching:
            return
        size = self.pool.block_size
        prefix = sequence.prefix
        for index in range(len(prefix), min(computed, len(sequence.tokens)) // size):
            parent = prefix[-1] if prefix else sequence.request.salt
            tokens = tuple(sequence.tokens[index * size : (index + 1) * size])
            prefix.append(self.pool.publish(sequence.blocks[index], parent, tokens))

    # --- ending ---

    def _abort(self, sequence: Sequence) -> None:
        output = Output(sequence.request.id, sequence.choice, [], finish=FinishReason.ABORT, usage=sequence.usage())
        self._finals.append(output)
        self.counters.aborted += 1
        siblings, sequence.siblings = sequence.siblings, []
        if sequence.row < 0 and sequence in self.waiting:
            self.waiting.remove(sequence)
        self._end(sequence)
        self._settle(sequence)
        survivors = [s for s in siblings if not s.finished]
        if survivors:  # the next choice computes the prompt in its place
            survivors[0].siblings = survivors[1:]
            self._enqueue(survivors[0])

    def _end(self, sequence: Sequence) -> None:
        """The sequence has had its final event. Its blocks follow once no launched step can touch them."""
        sequence.finished = True
        if sequence.row >= 0:
            self.running.remove(sequence)
        live = self._live[sequence.request.id]
        live.remove(sequence)
        if not live:
            del self._live[sequence.request.id]

    def _settle(self, sequence: Sequence) -> None:
        if sequence.in_flight == 0 and sequence.row >= 0:
            self._give_back(sequence)

    def _give_back(self, sequence: Sequence) -> None:
        """Release blocks and row. The runner learns of the row with the next plan, before it is used again."""
        self.pool.release(sequence.blocks)
        sequence.blocks = []
        self.rows[sequence.row] = None
        self._free_rows.append(sequence.row)
        self._retire.append(sequence.row)
        sequence.row = -1

    def _enqueue(self, sequence: Sequence) -> None:
        insort(self.waiting, sequence, key=_order)


def _order(sequence: Sequence) -> tuple[int, int, int]:
    return sequence.order
