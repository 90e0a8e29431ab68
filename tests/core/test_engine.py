"""Engine: outputs and their ends, usage, statistics and the accounting of memory over time."""

from __future__ import annotations

import pytest
from trial import EOS, Trial

from octavo.core.block_pool import BlockPool
from octavo.core.engine import Engine
from octavo.core.scheduler import Scheduler
from octavo.sim.runner import SimRunner
from octavo.types import FinishReason, Request, SamplingParams, Usage

depths = pytest.mark.parametrize("depth", [1, 2])


@depths
def test_first_and_final_outputs_carry_usage(depth: int) -> None:
    trial = Trial(depth=depth)
    trial.ask([1] * 20, id="warm", max_tokens=1)
    trial.drain()
    trial.ask([1] * 20, id="a", max_tokens=4)
    trial.drain()
    assert [output.usage for output in trial.heard["a", 0].outputs] == [
        Usage(20, 1, 16),
        None,
        None,
        Usage(20, 4, 16),
    ]
    assert [output.usage for output in trial.heard["warm", 0].outputs] == [Usage(20, 1, 0)]


@depths
def test_the_token_that_stops_is_counted_and_named_but_not_delivered(depth: int) -> None:
    trial = Trial(depth=depth, eos_rate=1.0)
    trial.ask([1] * 20, id="a", max_tokens=9)
    trial.drain()
    final = trial.heard["a", 0].final
    assert final is not None
    assert (final.tokens, final.finish, final.stop_token) == ([], FinishReason.STOP, EOS)
    assert final.usage == Usage(20, 1, 0)


def test_ignore_eos_ignores_eos_and_no_other_stop_token() -> None:
    trial = Trial(eos_rate=1.0)
    trial.ask([1] * 20, id="a", max_tokens=5, ignore_eos=True)
    trial.ask([1] * 20, id="b", max_tokens=5, ignore_eos=True, stop_token_ids=(EOS,))
    trial.drain()
    assert trial.heard["a", 0].tokens == [EOS] * 5
    assert trial.heard["b", 0].tokens == []


def test_logprobs_go_to_those_who_asked() -> None:
    trial = Trial()
    trial.ask([1] * 5, id="with", max_tokens=3, logprobs=2)
    trial.ask([2] * 5, id="without", max_tokens=3)
    trial.drain()
    for output in trial.heard["with", 0].outputs:
        assert output.logprobs is not None
        assert [entry.token for entry in output.logprobs] == output.tokens
        assert len(output.logprobs[0].top) == 2
    assert all(output.logprobs is None for output in trial.heard["without", 0].outputs)


def test_final_events_come_even_when_nothing_runs() -> None:
    trial = Trial()
    trial.ask([1] * 5, id="a", max_tokens=3)
    trial.abort("a")
    (final,) = trial.step()
    assert final.finish is FinishReason.ABORT
    assert final.usage == Usage(5, 0, 0)


@depths
def test_statistics_count_what_happened(depth: int) -> None:
    trial = Trial(depth=depth, blocks=20)
    trial.ask([1] * 40, id="a", max_tokens=5)
    trial.step()
    stats = trial.engine.stats()
    assert (stats.running, stats.waiting, stats.blocks_total, stats.blocks_used) == (1, 0, 20, 3)
    assert (stats.useful_slots, stats.allocated_slots) == (40 + depth - 1, 48)
    trial.drain()
    trial.ask([1] * 40, id="b", max_tokens=5)
    trial.step()
    trial.abort("b")
    trial.drain()
    stats = trial.engine.stats()
    assert (stats.running, stats.waiting, stats.blocks_used, stats.blocks_cached) == (0, 0, 0, 2)
    assert (stats.prompt_tokens, stats.hit_tokens) == (80, 32)
    assert (stats.finished, stats.aborted) == (1, 1)
    assert stats.generated_tokens == 6
    assert stats.steps == len(trial.runner.plans)


def test_occupancy_counts_a_shared_block_once() -> None:
    trial = Trial()
    trial.ask([1] * 20, id="a", n=4, max_tokens=3, temperature=1.0)
    trial.step()
    assert trial.scheduler.occupancy() == (20, 32)
    trial.step()
    assert trial.pool.used == 5
    assert trial.scheduler.occupancy() == (16 + 4 * 5, 5 * 16)


def test_slot_seconds_add_up_on_a_clock() -> None:
    """A clock that the test moves: slots are counted from the plan that took them to the plan that changed them."""
    now = 0.0
    trial = Trial()
    sim = SimRunner(trial.model, rows=8, blocks=64, block_size=16)
    engine = Engine(Scheduler(BlockPool(64, 16), trial.limits), sim, clock=lambda: now)
    engine.add(Request(id="a", prompt=[1] * 20, params=SamplingParams(max_tokens=3, temperature=0.0), seed=0))
    now = 10.0  # nothing is held while the engine waits
    engine.step()
    now = 12.0  # 20 tokens in two blocks, for 2 s
    engine.step()
    now = 15.0  # 21 tokens, for 3 s
    engine.step()
    now = 99.0  # nothing
    stats = engine.stats()
    assert engine.idle
    assert stats.useful_slot_seconds == 20 * 2 + 21 * 3
    assert stats.allocated_slot_seconds == 32 * 5


def test_debug_checks_when_idle() -> None:
    trial = Trial(watch=False)
    trial.ask([1] * 20, max_tokens=2)
    trial.engine.step()
    trial.pool.acquire(trial.scheduler.running[0].blocks[:1])  # an owner that nobody knows
    with pytest.raises(AssertionError, match="references and"):
        trial.engine.step()
