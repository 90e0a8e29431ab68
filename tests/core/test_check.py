"""check() notices each kind of corruption. A check that cannot fail would let every other test pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from trial import Trial

from octavo.core.check import check
from octavo.core.scheduler import Scheduler


def lose_a_reference(scheduler: Scheduler) -> None:
    scheduler.running[0].blocks.pop(0)


def compute_the_unknown(scheduler: Scheduler) -> None:
    scheduler.running[0].computed += 2


def hold_a_spare_block(scheduler: Scheduler) -> None:
    scheduler.running[0].blocks += scheduler.pool.allocate(1) or []


def share_a_row(scheduler: Scheduler) -> None:
    scheduler.running[1].row = scheduler.running[0].row


def wait_with_blocks(scheduler: Scheduler) -> None:
    scheduler.waiting[0].blocks = scheduler.pool.allocate(1) or []


def wait_and_run(scheduler: Scheduler) -> None:
    scheduler.waiting.append(scheduler.running[0])


def forget_the_order(scheduler: Scheduler) -> None:
    scheduler.running.reverse()


def run_after_the_end(scheduler: Scheduler) -> None:
    scheduler.running[0].finished = True


def hit_everything(scheduler: Scheduler) -> None:
    scheduler.running[0].hit = scheduler.running[0].prompt_tokens


def publish_too_much(scheduler: Scheduler) -> None:
    scheduler.running[0].prefix += [7, 8, 9, 10]


def leak_a_block(scheduler: Scheduler) -> None:
    scheduler.pool.allocate(1)


CORRUPTIONS: list[Callable[[Scheduler], None]] = [
    lose_a_reference,
    compute_the_unknown,
    hold_a_spare_block,
    share_a_row,
    wait_with_blocks,
    wait_and_run,
    forget_the_order,
    run_after_the_end,
    hit_everything,
    publish_too_much,
    leak_a_block,
]


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda corrupt: corrupt.__name__)
def test_corruption_is_noticed(corrupt: Callable[[Scheduler], None]) -> None:
    trial = Trial(rows=2)
    for token in (1, 2, 3):
        trial.ask([token] * 40, max_tokens=20)
    trial.step()
    trial.step()
    check(trial.scheduler)
    corrupt(trial.scheduler)
    with pytest.raises(AssertionError):
        check(trial.scheduler)
