"""Several choices of one request: shared blocks, copy-on-write, and draws that depend on the choice alone."""

from __future__ import annotations

import pytest
from trial import Trial


def copies(trial: Trial) -> list[int]:
    return [len(plan.copies) for plan in trial.runner.plans]


def test_eight_choices_of_a_long_prompt_share_its_blocks_until_they_write() -> None:
    trial = Trial(max_len=600, chunk=1000)
    trial.ask([1 + i % 40 for i in range(500)], n=8, max_tokens=2, temperature=1.0)
    trial.step()
    assert trial.pool.used == 32, "500 tokens take 32 blocks, whoever shares them"
    assert trial.scheduler.occupancy() == (500, 512)
    trial.step()
    assert copies(trial) == [0, 7], "seven copy the partly filled block, the last one to write keeps it"
    trial.drain()
    trial.verify()


def test_a_shared_last_block_that_is_full_is_never_copied() -> None:
    trial = Trial()
    trial.ask([1] * 32, n=3, max_tokens=4, temperature=1.0)
    trial.step()
    assert trial.pool.used == 2
    trial.step()
    assert trial.pool.used == 5
    trial.drain()
    trial.verify()
    assert sum(copies(trial)) == 0


def test_after_its_copy_a_choice_writes_in_place() -> None:
    trial = Trial()
    trial.ask([1] * 20, n=2, max_tokens=10, temperature=1.0)
    trial.drain()
    trial.verify()
    assert sum(copies(trial)) == 1


def test_a_copy_replaces_the_last_entry_of_the_table() -> None:
    trial = Trial()
    trial.ask([1] * 20, n=2, max_tokens=3, temperature=1.0)
    trial.step()
    trial.step()
    plan = trial.runner.plans[1]
    ((source, target),) = plan.copies
    writer = next(row for row in plan.rows if row.new_blocks)
    assert (writer.table_start, writer.new_blocks) == (1, [target])
    assert source in trial.scheduler.running[1].blocks


@pytest.mark.parametrize("depth", [1, 2])
def test_choices_draw_from_the_same_logits_with_their_own_noise(depth: int) -> None:
    trial = Trial(depth=depth, vocab=1000)
    trial.ask([1] * 20, n=4, max_tokens=12, temperature=1.0)
    trial.ask([1] * 20, n=4, max_tokens=12, temperature=0.0)
    trial.drain()
    trial.verify()
    sampled = {tuple(trial.heard["r0", choice].tokens) for choice in range(4)}
    greedy = {tuple(trial.heard["r1", choice].tokens) for choice in range(4)}
    assert len(sampled) == 4
    assert len(greedy) == 1


def test_the_prompt_is_computed_once_for_all_choices() -> None:
    trial = Trial()
    trial.ask([1] * 50, n=8, max_tokens=1, temperature=1.0)
    trial.drain()
    assert [plan.tokens for plan in trial.runner.plans] == [50]
    assert len(trial.runner.plans[0].rows[0].forks) == 7
    trial.verify()


def test_choices_without_a_row_wait_and_hit_the_prompt_of_the_others() -> None:
    trial = Trial(rows=2)
    trial.ask([1] * 50, n=5, max_tokens=6, temperature=1.0)
    trial.step()
    assert [len(trial.scheduler.running), len(trial.scheduler.waiting)] == [2, 3]
    trial.drain()
    trial.verify()
    usages = [output.usage for choice in range(5) if (output := trial.heard["r0", choice].final)]
    assert [usage.cached_tokens for usage in usages if usage] == [0, 0, 48, 48, 48]


@pytest.mark.parametrize("depth", [1, 2])
def test_choices_end_apart(depth: int) -> None:
    trial = Trial(eos_rate=0.15, depth=depth)
    trial.ask([1] * 20, n=12, max_tokens=40, temperature=1.0)
    trial.drain()
    trial.verify()
    assert len({len(heard.tokens) for heard in trial.heard.values()}) > 2


def test_a_choice_whose_sharer_was_preempted_writes_in_place() -> None:
    """Two choices fill the pool and share every block. The older one needs no copy once the younger has gone, so
    it must neither be preempted too nor leave the step without a plan."""
    trial = Trial(blocks=4, block_size=16, max_len=65)
    trial.ask([1 + i % 40 for i in range(60)], n=2, max_tokens=4, temperature=1.0)
    trial.step()
    assert trial.pool.free == 0
    trial.step()
    assert [s.choice for s in trial.scheduler.running] == [0]
    assert trial.scheduler.counters.preemptions == 1
    trial.drain()
    trial.verify()
    assert sum(copies(trial)) == 0
