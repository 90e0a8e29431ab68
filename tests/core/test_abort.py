"""Aborts in every state: one final event, blocks back within a step, and nobody else's tokens change."""

from __future__ import annotations

import time

import pytest
from trial import Trial

from octavo.core.plan import StepResult
from octavo.types import FinishReason

depths = pytest.mark.parametrize("depth", [1, 2])


def finish(trial: Trial, name: str, choice: int = 0) -> FinishReason | None:
    final = trial.heard[name, choice].final
    return None if final is None else final.finish


def test_waiting() -> None:
    trial = Trial(rows=1)
    trial.ask([1] * 5, id="runs", max_tokens=5)
    trial.ask([2] * 5, id="waits", max_tokens=5)
    trial.step()
    trial.abort("waits")
    trial.step()
    assert finish(trial, "waits") is FinishReason.ABORT
    trial.drain()
    trial.verify()


@depths
def test_running_frees_its_blocks_within_one_step(depth: int) -> None:
    trial = Trial(depth=depth)
    trial.ask([1] * 50, id="goes", max_tokens=50)
    trial.ask([2] * 50, id="stays", max_tokens=50)
    for _ in range(5):
        trial.step()
    trial.abort("goes")
    trial.step()
    assert finish(trial, "goes") is FinishReason.ABORT
    assert all(s is None or s.request.id == "stays" for s in trial.scheduler.rows)
    trial.drain()
    trial.verify()


def test_a_block_filled_by_a_token_that_an_abort_drops_is_never_found() -> None:
    """Three steps in flight: the last one fills the block with a token that nobody will ever hear of."""
    trial = Trial()
    trial.ask([1] * 14, id="goes", max_tokens=50)
    plans = [trial.scheduler.plan() for _ in range(3)]
    trial.abort("goes")
    for plan in plans:
        assert plan is not None
        trial.scheduler.commit(plan, StepResult([5]))
    assert plans[-1].rows[0].start + 1 == 16
    assert trial.pool.published == 0
    assert trial.pool.free == trial.pool.total


@depths
def test_in_the_middle_of_its_prompt(depth: int) -> None:
    trial = Trial(depth=depth, chunk=16)
    trial.ask([1] * 100, id="goes", max_tokens=5)
    trial.step()
    trial.abort("goes")
    trial.ask([1] * 100, id="next", max_tokens=5)
    trial.drain()
    trial.verify()


@depths
def test_preempted(depth: int) -> None:
    trial = Trial(blocks=5, depth=depth, watermark=0)
    trial.ask([1] * 14, id="old", max_tokens=50)
    trial.ask([2] * 14, id="young", max_tokens=50)
    trial.step_until(lambda: trial.scheduler.counters.preemptions > 0)
    assert [s.request.id for s in trial.scheduler.waiting] == ["young"]
    trial.abort("young")
    trial.drain()
    trial.verify()
    assert finish(trial, "young") is FinishReason.ABORT


def test_twice_unknown_and_ended_are_no_error() -> None:
    trial = Trial()
    trial.abort("nobody")
    trial.ask([1], id="a", max_tokens=2)
    trial.abort("a")
    trial.abort("a")
    trial.abort("a", 0)
    trial.drain()
    trial.abort("a")
    assert trial.step() == []
    trial.verify()


@depths
def test_one_choice_leaves_the_others_alone(depth: int) -> None:
    trial = Trial(depth=depth)
    trial.ask([1] * 20, id="a", n=3, max_tokens=20, temperature=1.0)
    for _ in range(4):
        trial.step()
    trial.abort("a", 1)
    trial.drain()
    trial.verify()
    assert [finish(trial, "a", choice) for choice in range(3)] == [
        FinishReason.LENGTH,
        FinishReason.ABORT,
        FinishReason.LENGTH,
    ]


@depths
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_the_choice_that_computes_the_prompt_hands_it_on(depth: int, steps: int) -> None:
    """Waiting (0 steps) or in the middle of its prompt: the next choice computes it for the rest."""
    trial = Trial(depth=depth, chunk=16)
    trial.ask([1] * 80, id="a", n=3, max_tokens=6, temperature=1.0)
    for _ in range(steps):
        trial.step()
    trial.abort("a", 0)
    trial.drain()
    trial.verify()
    assert [finish(trial, "a", choice) for choice in range(3)] == [
        FinishReason.ABORT,
        FinishReason.LENGTH,
        FinishReason.LENGTH,
    ]


def test_choices_not_yet_forked_and_not_yet_admitted() -> None:
    trial = Trial(rows=2, chunk=16)
    trial.ask([1] * 40, id="a", n=5, max_tokens=6, temperature=1.0)
    trial.step()
    trial.abort("a", 2)  # its prompt is not yet computed
    trial.step_until(lambda: bool(trial.scheduler.waiting))
    trial.abort("a", 4)  # no row was free for it
    trial.drain()
    trial.verify()
    aborted = [choice for choice in range(5) if finish(trial, "a", choice) is FinishReason.ABORT]
    assert aborted == [2, 4]


@depths
def test_all_choices_before_any_was_forked(depth: int) -> None:
    trial = Trial(depth=depth, chunk=16)
    trial.ask([1] * 40, id="a", n=4, max_tokens=6)
    trial.step()
    trial.abort("a")
    trial.step()
    assert [finish(trial, "a", choice) for choice in range(4)] == [FinishReason.ABORT] * 4
    trial.drain()


@depths
def test_a_sharer_that_leaves_under_a_launched_copy(depth: int) -> None:
    """The source of a copy belongs to a choice that is aborted while the copy is in flight."""
    for leaver in (0, 1):
        trial = Trial(depth=depth, blocks=8)
        trial.ask([1] * 20, id="a", n=2, max_tokens=20, temperature=1.0)
        trial.step()
        trial.abort("a", leaver)
        trial.ask([2] * 60, id="next", max_tokens=6)
        trial.drain()
        trial.verify()


@depths
def test_the_final_event_counts_what_was_delivered(depth: int) -> None:
    trial = Trial(depth=depth)
    trial.ask([1] * 20, id="a", max_tokens=50)
    for _ in range(6):
        trial.step()
    delivered = len(trial.heard["a", 0].tokens)
    trial.abort("a")
    trial.drain()
    final = trial.heard["a", 0].final
    assert final is not None
    assert final.usage is not None
    assert final.usage.completion_tokens == delivered == len(trial.heard["a", 0].tokens)


def test_a_storm_of_ten_thousand() -> None:
    """Ends in seconds and leaks nothing, waiting and running alike."""
    trial = Trial(rows=64, blocks=512, watch=False, depth=2)
    for index in range(10_000):
        trial.ask([1 + index % 40] * 20, max_tokens=20)
    for _ in range(5):
        trial.step()
    started = time.perf_counter()
    for name in list(trial.requests)[::-1]:
        trial.abort(name)
    assert time.perf_counter() - started < 5
    trial.drain()
    trial.scheduler.pool.check()
    assert all(heard.final is not None for heard in trial.heard.values())
    assert trial.engine.stats().aborted == 10_000
