"""Medians, ratios within rounds and verdicts, against numbers worked out by hand."""

import pytest

from octavo.bench.compare.ratios import Ratio, Series, best, ratio, verdicts
from octavo.bench.compare.workloads import BEST, Goal, Metric


def series(contender: str, *rates: float | None, label: str = "as given", failure: str | None = None) -> Series:
    return Series(contender=contender, label=label, rates=list(rates), failure=failure)


def test_rates_are_tokens_per_second_of_the_metric() -> None:
    figures = {"prefill_tokens": 512, "prefill_s": 2.0, "decode_tokens": 63, "decode_s": 0.5}
    assert Metric.PREFILL.rate(figures) == 256.0
    assert Metric.DECODE.rate(figures) == 126.0
    assert Metric.OUTPUT.rate({"output_tokens": 30, "wall_s": 4}) == 7.5


def test_medians_leave_out_what_did_not_run() -> None:
    assert series("a", 1.0, None, 5.0, 3.0).median == 3.0
    assert series("a", None).median is None


def test_ratios_are_taken_within_rounds() -> None:
    # The machine slows down threefold in the second round: the ratio stays what it is.
    own, other = series("octavo", 30.0, 10.0, 33.0), series("p", 15.0, 5.0, 15.0)
    assert ratio(own, other) == Ratio(2.0, 2.0, pytest.approx(2.2), 3)
    # Ratio of medians would be 3; within rounds it is 1 and 4.
    assert ratio(series("octavo", 10.0, 40.0), series("p", 10.0, 10.0)) == Ratio(2.5, 1.0, 4.0, 2)


def test_rounds_in_which_one_is_missing_do_not_count() -> None:
    assert ratio(series("octavo", 10.0, 20.0, 30.0), series("slow", 5.0)) == Ratio(2.0, 2.0, 2.0, 1)
    assert ratio(series("octavo", 10.0, None), series("p", None, 5.0)) is None


def test_the_best_way_is_the_one_with_the_highest_median() -> None:
    steady, lucky = series("p", 10.0, 10.0, 10.0), series("p", 1.0, 2.0, 99.0)
    assert best([lucky, steady, series("p", failure="broke")]) is steady
    assert best([series("p", failure="broke")]) is None


@pytest.mark.parametrize(("own", "word"), [(19.0, "missed"), (20.0, "must"), (23.9, "must"), (24.0, "aim")])
def test_words_follow_the_goal(own: float, word: str) -> None:
    (verdict,) = verdicts([series("octavo", own)], [series("p", 10.0)], [Goal("p", 2.0, 2.4)])
    assert verdict.word == word


def test_a_goal_against_the_best_peer_falls_to_it_and_comes_first() -> None:
    own = [series("octavo", 10.0), series("octavo", 12.0)]
    others = [series("slow", 3.0), series("fast", 4.0, label="a"), series("fast", 6.0, label="b")]
    first, second = verdicts(own, others, [Goal(BEST, 1.5, 2.5)])
    assert (first.peer, first.word, first.must) == ("fast", "must", 1.5)
    assert first.other is others[2]
    assert first.own is own[1]
    assert (second.peer, second.word, second.must) == ("slow", "", None)
    assert second.ratio == Ratio(4.0, 4.0, 4.0, 1)


def test_whoever_failed_has_a_reason_and_no_ratio() -> None:
    others = [series("gone", failure="not found: no interpreter"), series("p", 5.0)]
    lines = {line.peer: line for line in verdicts([series("octavo", 10.0)], others, [Goal("gone", 2.0, 3.0)])}
    assert (lines["gone"].word, lines["gone"].reason) == ("n/a", "not found: no interpreter")
    assert lines["p"].ratio is not None
    (line,) = verdicts([series("octavo", failure="out of memory")], [series("p", 5.0)], [])
    assert (line.word, line.reason) == ("n/a", "octavo: out of memory")
