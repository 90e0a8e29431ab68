"""bench_step: what planning and committing one all-decode step costs. Scheduler only, no model and no runner.

The budget is what a step may spend on deciding before it shows in the speed of small models.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import msgspec

from octavo.core.admission import Limits
from octavo.core.block_pool import BlockPool
from octavo.core.kv_spec import DEFAULT_BLOCK_SIZE
from octavo.core.plan import StepResult
from octavo.core.scheduler import Scheduler
from octavo.types import Request, SamplingParams

ROWS = (1, 8, 23, 64, 256)
_PROMPT_TOKENS = 64
_VOCAB = 1000


class StepTiming(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over many steps with `rows` running sequences, in milliseconds."""

    rows: int
    plan_ms: float
    commit_ms: float
    step_ms: float  # both together
    budget_ms: float


def budget_ms(rows: int) -> float:
    """What planning and committing one all-decode step may take: 0.15 ms + 3 microseconds per running sequence."""
    return 0.15 + 0.003 * rows


def bench_step(
    rows: Sequence[int] = ROWS, *, steps: int = 300, block_size: int = DEFAULT_BLOCK_SIZE
) -> list[StepTiming]:
    """Time `steps` steps for each number of running sequences. Block boundaries are spread over the sequences, so
    that every step allocates and publishes its share of blocks."""
    return [_time_steps(count, steps, block_size) for count in rows]


def _time_steps(rows: int, steps: int, block_size: int) -> StepTiming:
    scheduler = _all_decoding(rows, steps, block_size)
    token = 0
    plan_s, commit_s, step_s = [], [], []
    for _ in range(steps):
        token = (token + 1) % _VOCAB
        result = StepResult([token] * rows)
        started = time.perf_counter()
        plan = scheduler.plan()
        planned = time.perf_counter()
        assert plan is not None, "a sequence ended before its time"
        scheduler.commit(plan, result)
        ended = time.perf_counter()
        plan_s.append(planned - started)
        commit_s.append(ended - planned)
        step_s.append(ended - started)
    return StepTiming(
        rows=rows,
        plan_ms=1e3 * statistics.median(plan_s),
        commit_ms=1e3 * statistics.median(commit_s),
        step_ms=1e3 * statistics.median(step_s),
        budget_ms=budget_ms(rows),
    )


def _all_decoding(rows: int, steps: int, block_size: int) -> Scheduler:
    """A scheduler whose `rows` sequences have all caught up, with room for `steps` more tokens each."""
    longest = _PROMPT_TOKENS + block_size + steps + 2
    pool = BlockPool(rows * (-(-longest // block_size) + 2), block_size)
    scheduler = Scheduler(pool, Limits(rows=rows, chunk=rows * longest, max_len=longest, vocab=_VOCAB, queue=rows))
    params = SamplingParams(ignore_eos=True)
    for index in range(rows):
        prompt = [index % _VOCAB] * (_PROMPT_TOKENS + index % block_size)
        scheduler.add(Request(id=str(index), prompt=prompt, params=params, seed=index))
    plan = scheduler.plan()
    assert plan is not None, "nothing was planned"
    assert len(plan.rows) == rows, "not all sequences fit in the first step"
    scheduler.commit(plan, StepResult([0] * rows))
    return scheduler
