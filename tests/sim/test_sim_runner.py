"""SimRunner refuses every plan that breaks a rule, and its clock follows its cost model."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from octavo.core.plan import Admit, Row, StepPlan
from octavo.sim.model import FakeModel
from octavo.sim.runner import SimRunner, StepCost
from octavo.types import SamplingParams

GREEDY = SamplingParams(temperature=0.0)


def admit(row: int, tokens: list[int], *, computed: int = 0, blocks: list[int] | None = None) -> Admit:
    return Admit(row, tokens, len(tokens), computed, blocks or [], GREEDY, 0, 0)


def plan(step: int, *rows: Row, admits: list[Admit] = [], retire: list[int] = [], copies=()) -> StepPlan:  # noqa: B006
    return StepPlan(step, list(retire), list(admits), list(copies), list(rows), sum(row.count for row in rows))


def runner(**options: object) -> SimRunner:
    """Blocks of 4; row 0 has computed a prompt of 6 tokens in blocks 0 and 1 and drawn a seventh."""
    made = SimRunner(FakeModel(100), rows=4, blocks=8, block_size=4, **options)  # type: ignore[arg-type]
    made.launch(plan(0, Row(0, 0, 6, True, 0, [0, 1], []), admits=[admit(0, [1] * 6)]))
    return made


BAD_PLANS: dict[str, Callable[[], StepPlan]] = {
    "comes instead of step": lambda: plan(2, Row(0, 6, 1, True, 2, [], [])),
    "admitted while in use": lambda: plan(1, admits=[admit(0, [1])]),
    "was not admitted": lambda: plan(1, Row(3, 0, 1, True, 0, [2], [])),
    "planned from": lambda: plan(1, Row(0, 5, 2, True, 2, [], [])),
    "beyond the tokens it has": lambda: plan(1, Row(0, 6, 2, True, 2, [], [])),
    "must sample exactly": lambda: plan(1, Row(0, 6, 1, False, 2, [], [])),
    "computes nothing": lambda: plan(1, Row(0, 6, 0, True, 2, [], [])),
    "cover its tokens exactly": lambda: plan(1, Row(0, 6, 1, True, 2, [2], [])),
    "leave a gap": lambda: plan(1, Row(0, 6, 1, True, 3, [2], [])),
    "are replaced by copies of": lambda: plan(1, Row(0, 6, 1, True, 1, [2], [])),
    "which others hold": lambda: plan(
        1, Row(0, 6, 1, True, 2, [], []), admits=[admit(1, [1] * 6, computed=6, blocks=[0, 1])]
    ),
    "planned twice": lambda: plan(1, Row(0, 6, 1, True, 2, [], []), Row(0, 7, 1, True, 2, [], [])),
    "draws before": lambda: plan(
        1, Row(0, 6, 1, True, 2, [], [1]), admits=[admit(1, [1] * 7, computed=4, blocks=[0, 1])]
    ),
    "sum of counts": lambda: StepPlan(1, [], [], [], [Row(0, 6, 1, True, 2, [], [])], 7),
}


@pytest.mark.parametrize("words", BAD_PLANS)
def test_a_plan_that_breaks_a_rule_is_refused(words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        runner().launch(BAD_PLANS[words]())


def test_two_rows_may_not_write_one_slot() -> None:
    made = runner()
    with pytest.raises(AssertionError, match="which others hold"):
        made.launch(
            plan(
                1,
                Row(1, 0, 1, True, 0, [2], []),
                Row(2, 0, 1, True, 0, [2], []),
                admits=[admit(1, [1]), admit(2, [1])],
            )
        )


def test_the_next_token_depends_on_what_the_table_reads() -> None:
    honest, misled = runner(), runner()
    step = plan(1, Row(0, 6, 1, True, 2, [], []))
    misled._state(0).blocks[0] = 5  # never written
    misled._holders[5] += 1
    assert honest.launch(step).wait() != misled.launch(step).wait()


def test_a_new_block_holds_nothing_of_its_last_owner() -> None:
    made = runner()
    made.launch(plan(1, Row(1, 0, 1, True, 0, [0], []), admits=[admit(1, [2])], retire=[0]))
    assert bytes(made._cache[0][8:]) == b"\xff" * 24


def test_a_copy_brings_the_contents_along() -> None:
    made = runner()
    alone = made.launch(
        plan(
            1,
            Row(0, 6, 1, True, 1, [3], []),
            admits=[admit(1, [1] * 6, computed=6, blocks=[0, 1])],
            copies=[(1, 3)],
        )
    ).wait()
    assert alone == runner().launch(plan(1, Row(0, 6, 1, True, 2, [], []))).wait()


def test_the_clock_is_linear_in_the_plan() -> None:
    cost = StepCost(fixed_s=1.0, token_s=0.1, row_s=0.01, context_token_s=0.001)
    made = runner(cost=cost)
    assert made.now_s == pytest.approx(1 + 6 * 0.1 + 0.01 + 6 * 0.001)
    before = made.now_s
    made.launch(plan(1, Row(0, 6, 1, True, 2, [], [])))
    assert made.now_s - before == pytest.approx(1 + 0.1 + 0.01 + 7 * 0.001)


def test_poison_crashes_the_step_that_computes_it() -> None:
    made = runner(poison_token=13)
    with pytest.raises(RuntimeError, match="poison"):
        made.launch(plan(1, Row(1, 0, 1, True, 0, [2], []), admits=[admit(1, [13])]))
