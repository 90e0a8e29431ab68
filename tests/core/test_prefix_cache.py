"""Prefix hits: what is reused, when it can be found, and that it never changes a token."""

from __future__ import annotations

import pytest
from trial import Trial

from octavo.types import Request, SamplingParams

PROMPT = list(range(1, 41))  # two full blocks and a half


def cached_tokens(trial: Trial, name: str) -> int:
    final = trial.heard[name, 0].final
    assert final is not None
    assert final.usage is not None
    return final.usage.cached_tokens


def test_full_blocks_of_a_finished_request_are_hit() -> None:
    trial = Trial()
    trial.ask(PROMPT, id="first", max_tokens=3)
    trial.drain()
    trial.ask(PROMPT, id="again", max_tokens=3)
    trial.ask([*PROMPT[:20], 49, 49], id="half", max_tokens=3)
    trial.ask([49, *PROMPT], id="shifted", max_tokens=3)
    trial.drain()
    trial.verify()
    assert [cached_tokens(trial, name) for name in trial.requests] == [0, 32, 16, 0]
    assert trial.scheduler.counters.hit_tokens == 48


@pytest.mark.parametrize(("length", "hit"), [(32, 16), (33, 32), (16, 0), (17, 16)])
def test_at_least_one_token_is_computed(length: int, hit: int) -> None:
    """S15: without one there would be no logits to draw from."""
    trial = Trial()
    trial.ask(PROMPT[:length], id="first", max_tokens=2)
    trial.drain()
    trial.ask(PROMPT[:length], id="again", max_tokens=2)
    trial.drain()
    trial.verify()
    assert cached_tokens(trial, "again") == hit


def test_generated_tokens_are_hit_by_the_next_turn_of_a_chat() -> None:
    trial = Trial()
    trial.ask(PROMPT, id="turn 1", max_tokens=30)
    trial.drain()
    answer = trial.heard["turn 1", 0].tokens
    trial.ask([*PROMPT, *answer, 7, 7, 7], id="turn 2", max_tokens=3)
    trial.drain()
    trial.verify()
    assert cached_tokens(trial, "turn 2") == 64, "69 of its 73 tokens were computed, 64 of them in full blocks"


def test_salts_separate_prefix_caches() -> None:
    trial = Trial()
    params = SamplingParams(max_tokens=2, temperature=0.0)
    for name, salt in (("a", "x"), ("b", "y"), ("c", "x")):
        trial.add(Request(id=name, prompt=PROMPT, params=params, seed=0, salt=salt))
        trial.drain()
    trial.verify()
    assert [cached_tokens(trial, name) for name in "abc"] == [0, 0, 32]


def test_caching_off_finds_nothing() -> None:
    trial = Trial(caching=False)
    for _ in range(2):
        trial.ask(PROMPT, max_tokens=2)
        trial.drain()
    trial.verify()
    assert trial.scheduler.counters.hit_tokens == 0
    assert trial.pool.published == 0


@pytest.mark.parametrize("depth", [1, 2])
def test_blocks_are_published_only_when_their_step_is_committed(depth: int) -> None:
    trial = Trial(depth=depth, chunk=16)
    trial.ask([1] * 64, max_tokens=2)
    for committed in (1, 2, 3):
        trial.step()
        assert trial.scheduler.running[0].computed == 16 * (committed + depth - 1), "launched"
        assert trial.pool.published == committed, "committed"
    trial.drain()


def test_a_request_in_progress_shares_what_it_has_committed() -> None:
    trial = Trial(chunk=16)
    trial.ask([1] * 100, id="long", max_tokens=2)
    for _ in range(3):
        trial.step()
    trial.ask([1] * 100, id="twin", max_tokens=2)
    trial.drain()
    trial.verify()
    assert cached_tokens(trial, "twin") > 0


def test_two_equal_prompts_computed_at_once_keep_one_findable_copy() -> None:
    trial = Trial(chunk=1000)
    trial.ask(PROMPT, max_tokens=2)
    trial.ask(PROMPT, max_tokens=2)
    trial.step()
    assert trial.pool.used == 6
    assert trial.pool.published == 2
    trial.drain()
    trial.verify()


def test_shared_blocks_outlive_the_request_that_computed_them() -> None:
    trial = Trial(blocks=12)
    trial.ask(PROMPT, id="first", max_tokens=2)
    trial.drain()
    trial.ask([*PROMPT[:32], 3, 3], id="sharer", max_tokens=40)
    trial.ask([*PROMPT[:32], 4, 4], id="other", max_tokens=40)
    trial.step()
    assert trial.pool.used == 4, "two shared blocks and one more for each"
    trial.ask([9] * 60, id="pressure", max_tokens=10)
    trial.drain()
    trial.verify()
