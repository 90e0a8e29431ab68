"""What a step computes: chunks, limits, and that a sequence whose end is known is not planned again."""

from __future__ import annotations

import pytest
from trial import Trial


def counts(trial: Trial) -> list[list[int]]:
    return [[row.count for row in plan.rows] for plan in trial.runner.plans]


def test_a_prompt_is_computed_in_chunks_and_only_the_last_one_draws() -> None:
    trial = Trial(chunk=16)
    trial.ask([1] * 40, max_tokens=2)
    trial.drain()
    assert counts(trial) == [[16], [16], [8], [1]]
    assert [[row.sample for row in plan.rows] for plan in trial.runner.plans] == [[False], [False], [True], [True]]


def test_decoding_goes_on_beside_a_long_prompt() -> None:
    trial = Trial(chunk=16)
    trial.ask([1] * 4, max_tokens=20)
    trial.step()
    trial.ask([2] * 48, max_tokens=2)
    trial.drain()
    assert counts(trial)[1:4] == [[1, 16], [1, 16], [1, 16]]


def test_several_prompts_share_one_chunk_oldest_first() -> None:
    trial = Trial(chunk=32)
    for token in (1, 2, 3):
        trial.ask([token] * 20, max_tokens=2)
    trial.drain()
    assert counts(trial)[0] == [20, 12]
    assert counts(trial)[1] == [1, 8, 20]


def test_no_more_sequences_run_than_there_are_rows() -> None:
    trial = Trial(rows=3)
    for token in range(1, 8):
        trial.ask([token] * 4, max_tokens=5)
    trial.drain()
    assert max(len(plan.rows) for plan in trial.runner.plans) == 3
    trial.verify()


@pytest.mark.parametrize("depth", [1, 2])
def test_the_last_token_is_never_fed_back(depth: int) -> None:
    trial = Trial(depth=depth)
    trial.ask([1] * 10, max_tokens=5)
    trial.drain()
    assert counts(trial) == [[10], [1], [1], [1], [1]]


def test_an_unforeseen_end_wastes_one_row_of_one_step_at_depth_2() -> None:
    trial = Trial(depth=2, eos_rate=1.0)
    trial.ask([1] * 10, max_tokens=5)
    trial.drain()
    assert counts(trial) == [[10], [1]]
    trial.verify()


@pytest.mark.parametrize(("depth", "in_flight"), [(1, 1), (2, 2)])
def test_as_many_steps_are_in_flight_as_the_runner_takes(depth: int, in_flight: int) -> None:
    trial = Trial(depth=depth)
    trial.ask([1] * 10, max_tokens=5)
    trial.drain()
    assert trial.runner.max_in_flight == in_flight


def test_nothing_to_do_is_no_plan() -> None:
    trial = Trial()
    assert trial.scheduler.plan() is None
    assert trial.step() == []
    assert trial.engine.idle


def test_one_block_holds_no_spare_slots_for_the_future() -> None:
    """Blocks are allocated when a token needs one, not before."""
    trial = Trial()
    trial.ask([1] * 15, max_tokens=4)
    used = []
    while not trial.engine.idle:
        trial.step()
        used.append(trial.pool.used)
    assert used == [1, 1, 2, 0], "15 and 16 tokens take one block, the 17th another"
