"""What is refused at the door, and in which order the rest is let in."""

from __future__ import annotations

import tracemalloc

import pytest
from trial import Trial

from octavo.core.admission import Limits
from octavo.core.block_pool import BlockPool
from octavo.core.scheduler import Scheduler
from octavo.errors import ContextLengthExceeded, InvalidRequest, QueueFull
from octavo.types import Request, SamplingParams


def request(prompt: list[int], **fields: object) -> Request:
    params = fields.pop("params", SamplingParams(temperature=0.0, max_tokens=4))
    return Request(**{"id": "x", "prompt": prompt, "params": params, "seed": 0, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (request([]), "prompt"),
        (request([1, 50]), "prompt"),
        (request([-1]), "prompt"),
        (request([1], generated=[50]), "prompt"),
        (request([1], generated=[2], params=SamplingParams(n=2, max_tokens=4)), "n"),
        (request([1], generated=[2, 3, 4, 5]), "max_tokens"),
    ],
    ids=["empty", "beyond vocab", "negative", "generated beyond vocab", "resumed fork", "nothing left"],
)
def test_what_cannot_be_served_is_refused_by_name(asked: Request, param: str) -> None:
    trial = Trial(vocab=50)
    with pytest.raises(InvalidRequest) as refused:
        trial.engine.add(asked)
    assert refused.value.param == param
    assert trial.engine.idle


def test_a_request_that_could_never_fit_the_pool_is_refused_and_the_largest_that_can_is_served() -> None:
    """The last token is never fed back, so 4 blocks of 16 serve 65 tokens."""
    trial = Trial(blocks=4, max_len=1000)
    with pytest.raises(ContextLengthExceeded, match=r"^This model's maximum context length is 65 tokens") as refused:
        trial.ask([1] * 60, max_tokens=6)
    assert refused.value.param == "max_tokens"
    with pytest.raises(ContextLengthExceeded):
        trial.ask([1] * 65)
    trial.ask([1] * 60, max_tokens=5)
    trial.ask([2] * 64, max_tokens=1)
    trial.drain()
    trial.verify()


def test_a_request_longer_than_the_context_is_refused() -> None:
    trial = Trial(max_len=100)
    with pytest.raises(ContextLengthExceeded, match="100 tokens"):
        trial.ask([1] * 100)
    with pytest.raises(ContextLengthExceeded):
        trial.ask([1] * 90, max_tokens=11)
    trial.ask([1] * 90, max_tokens=10)


def test_without_max_tokens_a_request_runs_until_the_context_is_full() -> None:
    trial = Trial(max_len=100)
    asked = trial.ask([1] * 60)
    trial.drain()
    assert len(trial.heard[asked.id, 0].tokens) == 40
    trial.verify()


def test_the_queue_is_bounded_and_says_when_to_come_back() -> None:
    trial = Trial(queue=2)
    trial.ask([1])
    trial.ask([2])
    with pytest.raises(QueueFull, match="the limit is 2") as full:
        trial.ask([3])
    assert full.value.retry_after_s > 0
    trial.add(request([3]), accepted=True)
    trial.step()
    trial.ask([4])
    trial.drain()


def test_an_id_in_use_is_our_bug_and_is_free_again_after_its_end() -> None:
    trial = Trial()
    trial.ask([1], id="a", max_tokens=2)
    with pytest.raises(ValueError, match="in use"):
        trial.engine.add(request([1], id="a"))
    trial.drain()
    trial.ask([1], id="a", max_tokens=2)


def test_a_resumed_request_continues_as_if_it_had_never_stopped() -> None:
    params = SamplingParams(max_tokens=20, temperature=1.0)
    whole = Trial()
    asked = whole.add(Request(id="a", prompt=[5] * 20, params=params, seed=3, choice=2))
    whole.drain()
    tokens = whole.heard["a", 2].tokens
    assert len(tokens) == 20
    for delivered in (1, 7, 19):
        rest = Trial()
        rest.add(Request(id="a", prompt=[5] * 20, params=params, seed=3, choice=2, generated=tokens[:delivered]))
        rest.drain()
        rest.verify()
        assert rest.heard["a", 2].tokens == tokens[delivered:], f"{asked} resumed after {delivered}"


def test_equal_priorities_start_in_order_of_arrival_and_lower_numbers_first() -> None:
    trial = Trial(rows=1)
    for name, priority in (("late", 1), ("first", 0), ("second", 0), ("urgent", -1)):
        trial.ask([1] * 5, id=name, priority=priority, max_tokens=3)
    trial.drain()
    order = sorted(trial.requests, key=lambda name: trial.heard[name, 0].first_step or 0)
    assert order == ["urgent", "first", "second", "late"]


def test_nobody_overtakes_the_head_of_the_queue() -> None:
    """A small request that would fit waits behind a large one that does not."""
    trial = Trial(blocks=8)
    trial.ask([1] * 70, id="runs", max_tokens=20)
    trial.step()
    trial.ask([2] * 70, id="large", max_tokens=20)
    trial.ask([3] * 2, id="small", max_tokens=2)
    trial.step()
    assert [s.request.id for s in trial.scheduler.waiting] == ["large", "small"]
    trial.drain()
    trial.verify()


def test_first_tokens_come_in_order_of_admission_under_preemption() -> None:
    """S13: FCFS, with a pool that holds a fraction of what is asked for."""
    trial = Trial(blocks=10, chunk=16)
    for index in range(20):
        trial.ask([index + 1] * (5 + 7 * index % 50), max_tokens=30)
    trial.drain()
    trial.verify()
    first_steps = [trial.heard[name, 0].first_step for name in trial.requests]
    assert first_steps == sorted(first_steps, key=lambda step: step or 0)
    assert trial.scheduler.counters.preemptions > 0


@pytest.mark.parametrize("watermark", [0, 1, 3])
def test_admission_leaves_the_watermark_free(watermark: int) -> None:
    """One sequence runs and needs no more blocks for now; the next one takes what is left but the watermark."""
    trial = Trial(blocks=10, watermark=watermark, chunk=1000)
    trial.ask([1] * 20, max_tokens=2)
    trial.step()
    reserve = max(watermark, 1)  # a block of growth for the one that runs, at least
    fitting = 10 - 2 - reserve
    trial.ask([2] * (16 * fitting + 1), id="too large", max_tokens=2)
    trial.step()
    assert not any(admit.tokens[0] == 2 for plan in trial.runner.plans for admit in plan.admit)
    trial.abort("too large")
    trial.ask([3] * (16 * fitting), max_tokens=2)
    trial.step()
    trial.drain()
    trial.verify()


def test_nobody_is_admitted_beside_a_prompt_that_takes_all_of_the_step() -> None:
    """So the blocks that its later chunks need are not given away, and it need not preempt for them."""
    trial = Trial(blocks=10, chunk=16)
    trial.ask([1] * 100, id="long", max_tokens=2)
    trial.step()
    trial.ask([2] * 50, max_tokens=2)
    for _ in range(5):
        trial.step()
        assert [s.request.id for s in trial.scheduler.running] == ["long"]
    trial.drain()
    assert trial.scheduler.counters.preemptions == 0


def test_nobody_is_admitted_while_one_that_runs_is_short_of_blocks() -> None:
    """Else a stream of small requests could starve a large one of the blocks it waits for."""
    trial = Trial(blocks=12, chunk=64, watch=False)
    trial.ask([2] * 14, id="young", priority=1, max_tokens=20)
    trial.scheduler.plan()
    trial.ask([1] * 113, id="old", max_tokens=20)
    trial.scheduler.plan()  # 64 of its tokens; 49 remain, which take 4 blocks
    trial.ask([3] * 4, id="small", priority=2, max_tokens=2)
    trial.pool.allocate(trial.pool.free - 3)  # enough for small and for growth, not for old
    assert trial.scheduler.plan() is None, "old waits for what young, whose steps are in flight, will give"
    assert [s.request.id for s in trial.scheduler.waiting] == ["small"]


@pytest.mark.parametrize("field", ["rows", "chunk", "max_len", "vocab", "queue", "watermark"])
def test_limits_that_allow_nothing_are_refused(field: str) -> None:
    good = {"rows": 1, "chunk": 1, "max_len": 2, "vocab": 1, "queue": 1, "watermark": 0}
    Limits(**good)
    with pytest.raises(ValueError, match="limits must be positive"):
        Limits(**{**good, field: good[field] - 1})


def test_choices_that_wait_cost_their_prompt_once() -> None:
    """128 choices of 8,000 tokens are 8 MB if each keeps a list of its own, and a thousand requests may wait."""
    limits = Limits(rows=2, chunk=16, max_len=16_000, vocab=10)
    scheduler = Scheduler(BlockPool(1000, 16), limits)
    prompt = [1] * 8000
    tracemalloc.start()
    scheduler.add(Request(id="many", prompt=prompt, params=SamplingParams(n=128, max_tokens=5), seed=0))
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken < 3 * 8 * len(prompt)
