"""SimRunner: executes plans against a simulated paged cache, and keeps a virtual clock.

Keeps per row exactly what a real runner must keep (tokens, block table, sampling parameters), reads and writes
its cache only through block tables, and computes with FakeModel. Asserts the rules that a plan promises to its
runner. The test double of the model in tests of engine, service and server, and the base of capacity planning.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from octavo.core.plan import Admit, Row, StepPlan, StepResult
from octavo.sim.model import SLOT_BYTES, Context, FakeModel
from octavo.types import TokenLogprob

_NEVER_WRITTEN = b"\xff"


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds that a step takes: a linear model. `context_token_s` is paid for each cached token read."""

    fixed_s: float = 0.0
    token_s: float = 0.0
    row_s: float = 0.0
    context_token_s: float = 0.0

    def of(self, plan: StepPlan) -> float:
        context = sum(row.start + row.count for row in plan.rows)
        return self.fixed_s + self.token_s * plan.tokens + self.row_s * len(plan.rows) + self.context_token_s * context


class SimPending:
    """A launched step: computed already, handed out on wait(), which sleeps `sleep_s` first."""

    def __init__(self, result: StepResult, sleep_s: float) -> None:
        self._result = result
        self._sleep_s = sleep_s

    def wait(self) -> StepResult:
        if self._sleep_s > 0:
            time.sleep(self._sleep_s)
        return self._result


class SimRunner:
    """`real_time` makes steps last as long as `cost` says; otherwise only `now_s` moves.

    A prompt that holds `poison_token` raises RuntimeError when it is computed, as a crashing model would.
    """

    def __init__(
        self,
        model: FakeModel,
        *,
        rows: int,
        blocks: int,
        block_size: int,
        depth: int = 1,
        cost: StepCost = StepCost(),
        real_time: bool = False,
        poison_token: int | None = None,
    ) -> None:
        self.depth = depth
        self.now_s = 0.0  # virtual time: the sum of all steps' costs
        self._model = model
        self._cost = cost
        self._real_time = real_time
        self._poison_token = poison_token
        self._block_size = block_size
        self._rows: list[Admit | None] = [None] * rows  # `tokens`, `computed` and `blocks` are kept up to date
        self._cache = [bytearray(_NEVER_WRITTEN * SLOT_BYTES * block_size) for _ in range(blocks)]
        self._holders = [0] * blocks  # rows whose table has the block
        self._next_step = 0

    def launch(self, plan: StepPlan) -> SimPending:
        self._begin(plan)
        written: set[int] = set()
        tokens: list[int] = []
        logprobs: list[TokenLogprob | None] = []
        for row in plan.rows:
            state = self._state(row.row)
            context = self._compute(state, row, written)
            if row.sample:
                for drawer in (state, *map(self._state, row.forks)):
                    token = self._draw(context, drawer)
                    tokens.append(token)
                    wanted = drawer.params.logprobs
                    logprobs.append(None if wanted is None else self._model.logprob(token, wanted))
        seconds = self._cost.of(plan)
        self.now_s += seconds
        result = StepResult(tokens, logprobs if any(logprobs) else None)
        return SimPending(result, seconds if self._real_time else 0.0)

    # --- state ---

    def _state(self, row: int) -> Admit:
        state = self._rows[row]
        assert state is not None, f"row {row} is planned but was not admitted"
        return state

    def _begin(self, plan: StepPlan) -> None:
        """Retire, admit, copy; then check all that the plan promises about tables before anything is written."""
        assert plan.step == self._next_step, f"step {plan.step} comes instead of step {self._next_step}"
        self._next_step += 1
        for row in plan.retire:
            self._hold(self._state(row).blocks, -1)
            self._rows[row] = None
        for admit in plan.admit:
            assert self._rows[admit.row] is None, f"row {admit.row} is admitted while in use"
            self._rows[admit.row] = Admit(
                admit.row,
                list(admit.tokens),
                admit.prompt_tokens,
                admit.computed,
                list(admit.blocks),
                admit.params,
                admit.seed,
                admit.choice,
            )
            self._hold(admit.blocks, +1)
        self._take_blocks(plan)
        assert plan.tokens == sum(row.count for row in plan.rows), "plan.tokens is not the sum of counts"
        assert len({row.row for row in plan.rows}) == len(plan.rows), "a row is planned twice"

    def _take_blocks(self, plan: StepPlan) -> None:
        """Bring block tables up to date and copy blocks. A block that is new to a table holds nothing."""
        copied = {}
        for src, dst in plan.copies:
            self._cache[dst][:] = self._cache[src]
            copied[dst] = src
        for row in plan.rows:
            table = self._state(row.row).blocks
            replaced = table[row.table_start :]
            assert row.table_start <= len(table), f"row {row.row}: its new blocks leave a gap in the table"
            sources = [copied[block] for block in row.new_blocks if block in copied]
            assert sources == replaced, f"row {row.row}: blocks {replaced} are replaced by copies of {sources}"
            for block in row.new_blocks:
                if block not in copied:
                    self._cache[block][:] = _NEVER_WRITTEN * len(self._cache[block])
            self._hold(replaced, -1)
            self._hold(row.new_blocks, +1)
            table[row.table_start :] = row.new_blocks

    def _hold(self, blocks: list[int], change: int) -> None:
        for block in blocks:
            self._holders[block] += change

    # --- computing ---

    def _compute(self, state: Admit, row: Row, written: set[int]) -> Context:
        """Read the row's context through its table, then compute and store its new tokens, one after another."""
        size = self._block_size
        end = row.start + row.count
        assert row.start == state.computed, f"row {row.row} is at token {state.computed}, planned from {row.start}"
        assert row.count > 0, f"row {row.row} computes nothing"
        assert end <= len(state.tokens), f"row {row.row} is planned beyond the tokens it has"
        assert row.sample == (end == len(state.tokens)), f"row {row.row} must sample exactly at its last token"
        assert len(state.blocks) == -(-end // size), f"row {row.row}: its table does not cover its tokens exactly"
        if self._poison_token is not None and self._poison_token in state.tokens[row.start : end]:
            raise RuntimeError(f"token {self._poison_token} is poison to this model")
        context = Context()
        self._read(context, state.blocks, row.start)
        for position in range(row.start, end):
            block, offset = state.blocks[position // size], position % size
            assert self._holders[block] == 1 + len(row.forks), f"row {row.row} writes block {block}, which others hold"
            slot = block * size + offset
            assert slot not in written, f"slot {slot} is written twice in a step"
            written.add(slot)
            content = context.slot(state.tokens[position], position)
            self._cache[block][offset * SLOT_BYTES : (offset + 1) * SLOT_BYTES] = content
            context.read(content)
        state.computed = end
        return context

    def _read(self, context: Context, table: list[int], count: int) -> None:
        """Read the first `count` slots of a block table."""
        full, rest = divmod(count, self._block_size)
        for block in table[:full]:
            context.read(self._cache[block])
        if rest:
            context.read(memoryview(self._cache[table[full]])[: rest * SLOT_BYTES])

    def _draw(self, context: Context, drawer: Admit) -> int:
        """Draw the token after all tokens of `drawer`, and remember it in the row."""
        assert drawer.computed == len(drawer.tokens), f"row {drawer.row} draws before its tokens are computed"
        token = self._model.next_token(context, drawer.params, drawer.seed, drawer.choice, len(drawer.tokens))
        drawer.tokens.append(token)
        return token
