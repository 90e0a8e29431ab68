"""The arithmetic of the comparison: medians over rounds, ratios within rounds, verdicts. Numbers in, numbers out."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from octavo.bench.compare.workloads import BEST, Goal


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One contender in one row, in one way. `rates` are tokens per second, one for each round; None where it did not
    run. `first` is the unmeasured first run, which chose the ways that went through the rounds. `failure` says why
    there are no rates, or no more. `restarts`: how often it was ended between rounds because it did not fall idle.
    `disturbance`: the largest share of the machine that other programs used during one of its runs."""

    contender: str
    label: str
    rates: list[float | None] = []
    first: float | None = None
    settings: dict[str, Any] = {}
    versions: dict[str, str] = {}
    failure: str | None = None
    restarts: int = 0
    disturbance: float = 0.0

    @property
    def median(self) -> float | None:
        measured = [rate for rate in self.rates if rate is not None]
        return statistics.median(measured) if measured else None


class Ratio(msgspec.Struct, frozen=True):
    """Octavo's tokens per second to a peer's: the median, least and largest of the ratios within rounds."""

    median: float
    low: float
    high: float
    rounds: int


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the report: Octavo against one peer in one row, with what was to be reached where there is a goal."""

    peer: str
    own: Series | None
    other: Series | None
    ratio: Ratio | None
    must: float | None = None
    aim: float | None = None
    reason: str | None = None  # why there is no ratio

    @property
    def word(self) -> str:
        """aim, must or missed; empty without a goal, n/a without a ratio."""
        if self.ratio is None:
            return "n/a"
        if self.must is None or self.aim is None:
            return ""
        if self.ratio.median >= self.aim:
            return "aim"
        return "must" if self.ratio.median >= self.must else "missed"


def ratio(own: Series, other: Series) -> Ratio | None:
    """Of the rounds in which both ran; None without any."""
    pairs = zip(own.rates, other.rates, strict=False)
    ratios = [mine / theirs for mine, theirs in pairs if mine is not None and theirs]
    if not ratios:
        return None
    return Ratio(statistics.median(ratios), min(ratios), max(ratios), len(ratios))


def best(series: Iterable[Series]) -> Series | None:
    """The one with the highest median; None when none has any."""
    measured = [one for one in series if one.median is not None]
    return max(measured, key=lambda one: one.median or 0.0, default=None)


def verdicts(own: Sequence[Series], others: Sequence[Series], goals: Sequence[Goal]) -> list[Verdict]:
    """A line for each peer in its best way, those with a goal first. A goal against the best peer falls to that one."""
    champion = best(own)
    leader = best(others)
    by_peer: dict[str, list[Series]] = {}
    for one in others:
        by_peer.setdefault(one.contender, []).append(one)
    goal_of = {leader.contender if goal.peer == BEST and leader else goal.peer: goal for goal in goals}
    lines = [_verdict(peer, champion, series, own, goal_of.get(peer)) for peer, series in by_peer.items()]
    return sorted(lines, key=lambda line: line.must is None)


def _verdict(
    peer: str, champion: Series | None, series: list[Series], own: Sequence[Series], goal: Goal | None
) -> Verdict:
    other = best(series)
    found = ratio(champion, other) if champion and other else None
    reason = None
    if other is None:
        reason = next((one.failure for one in series if one.failure), "not measured")
    elif champion is None:
        failed = next((one.failure for one in own if one.failure), "not measured")
        reason = f"octavo: {failed}"
    return Verdict(
        peer=peer,
        own=champion,
        other=other,
        ratio=found,
        must=goal.must if goal else None,
        aim=goal.aim if goal else None,
        reason=reason,
    )
