"""Preemption: the youngest gives way, loses no token, and nothing that a launched step may touch is taken."""

from __future__ import annotations

import pytest
from trial import Trial

from octavo.core.plan import StepResult

depths = pytest.mark.parametrize("depth", [1, 2])


def crowd(trial: Trial, count: int, tokens: int = 40) -> None:
    for index in range(count):
        trial.ask([1 + index] * 14, max_tokens=tokens, temperature=float(index % 2))


@depths
def test_the_youngest_is_preempted_and_goes_to_the_head_of_the_queue(depth: int) -> None:
    trial = Trial(blocks=6, depth=depth, watermark=0)
    crowd(trial, 3)
    trial.step()
    trial.ask([9] * 14, id="later", max_tokens=4)
    trial.step_until(lambda: trial.scheduler.counters.preemptions > 0)
    assert [s.request.id for s in trial.scheduler.waiting] == ["r2", "later"]
    assert [s.request.id for s in trial.scheduler.running] == ["r0", "r1"]
    trial.drain()
    trial.verify()


@depths
def test_a_preempted_sequence_keeps_its_tokens_and_its_first_hit(depth: int) -> None:
    trial = Trial(blocks=6, depth=depth)
    trial.ask([1] * 20, id="warm", max_tokens=2)
    trial.drain()
    trial.ask([2] * 14, id="old", max_tokens=60)
    trial.ask([1] * 20, id="young", max_tokens=40)
    trial.drain()
    trial.verify()
    assert trial.scheduler.counters.preemptions > 0
    final = trial.heard["young", 0].final
    assert final is not None
    assert final.usage is not None
    assert final.usage.cached_tokens == 16


@depths
@pytest.mark.parametrize("blocks", [4, 5, 7, 11])
def test_a_crowd_in_a_tiny_pool_ends(depth: int, blocks: int) -> None:
    """Trial.drain() bounds the steps; the watched runner refuses releases under a launched step."""
    trial = Trial(blocks=blocks, depth=depth, rows=8)
    crowd(trial, 16)
    trial.drain()
    trial.verify()
    assert trial.scheduler.counters.preemptions > 0


def test_preemption_waits_for_launched_steps() -> None:
    """When blocks run out while the youngest has steps in flight, it is left alone until they are committed."""
    trial = Trial(blocks=3, watermark=0)
    trial.ask([1] * 14, id="old", max_tokens=10)
    trial.ask([2] * 15, id="young", max_tokens=10)
    scheduler = trial.scheduler
    plans = [scheduler.plan() for _ in range(3)]  # the third gives young the last block
    for plan in plans:
        assert scheduler.plan() is None, "old needs a block, and young may not give one yet"
        assert scheduler.counters.preemptions == 0
        assert plan is not None
        scheduler.commit(plan, StepResult([5, 5]))
    last = scheduler.plan()
    assert last is not None
    assert [row.start for row in last.rows] == [16]
    assert scheduler.counters.preemptions == 1


def test_nobody_is_preempted_for_blocks_that_are_about_to_come_free() -> None:
    """A sequence that has ended still holds its blocks under a launched step. Who needs some waits for them."""
    trial = Trial(blocks=5, watermark=0, watch=False)
    trial.ask([1] * 15, id="old", max_tokens=10)
    trial.ask([2] * 10, id="ends", max_tokens=10)
    trial.ask([3] * 16, id="young", max_tokens=10)
    scheduler = trial.scheduler
    first = scheduler.plan()
    trial.pool.allocate(2)  # all that is left
    second = scheduler.plan()
    assert first is not None
    assert second is not None
    assert (len(first.rows), len(second.rows)) == (3, 2), "young needs a second block and waits"
    scheduler.commit(first, StepResult([5, 5, 5]))
    scheduler.abort("ends")
    assert scheduler.plan() is None, "old needs a second block, and the one of ends will be free soon"
    assert scheduler.counters.preemptions == 0
    scheduler.commit(second, StepResult([5, 5]))
    third = scheduler.plan()
    assert third is not None
    assert [(row.start, len(row.new_blocks)) for row in third.rows] == [(16, 1)]


def test_a_higher_priority_takes_blocks_from_a_lower_one() -> None:
    trial = Trial(blocks=6, watermark=0)
    trial.ask([1] * 30, id="low", priority=1, max_tokens=40)
    trial.step()
    trial.ask([2] * 30, id="high", priority=0, max_tokens=40)
    trial.drain()
    trial.verify()
    assert trial.heard["high", 0].final is not None
    preempted = [plan for plan in trial.runner.plans if any(admit.tokens[0] == 1 for admit in plan.admit)]
    assert len(preempted) == 2, "low was admitted twice, high once"


def test_a_preempted_sequence_resumes_from_its_own_cached_blocks() -> None:
    trial = Trial(blocks=8, watermark=0, chunk=64)
    trial.ask([1] * 60, id="old", max_tokens=40)
    trial.ask([2] * 40, id="young", max_tokens=10)
    trial.drain()
    trial.verify()
    assert trial.scheduler.counters.preemptions > 0
    resumed = [admit for plan in trial.runner.plans for admit in plan.admit if admit.tokens[0] == 2][-1]
    assert resumed.computed > 0
