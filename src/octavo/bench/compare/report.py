"""The report of a comparison: one struct for JSON, and its lines as cells for the terminal's table and for markdown."""

from __future__ import annotations

import platform
import textwrap
from collections.abc import Sequence
from pathlib import Path

import msgspec
import psutil

from octavo.bench.compare.disturbance import CALM
from octavo.bench.compare.ratios import Series, Verdict, verdicts
from octavo.bench.compare.workloads import OWN, SWEEP, Generate, Row
from octavo.runner.cores import usable_cores

COLUMNS = ("work", "Octavo tok/s", "peer", "peer tok/s", "ratio (range)", "must", "aim", "")
REASON_CHARACTERS = 160


class Machine(msgspec.Struct, frozen=True):
    processor: str
    cores: int
    memory_gib: float
    system: str
    python: str


class RowReport(msgspec.Struct, frozen=True):
    """A row's verdicts, and every series that they come from."""

    name: str
    title: str
    verdicts: list[Verdict]
    series: list[Series]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One run of `octavo bench compare`."""

    model: str
    threads: int
    rounds: int
    seed: int
    quick: bool
    command: str
    machine: Machine
    rows: list[RowReport]


def row_report(row: Row, series: Sequence[Series]) -> RowReport:
    own = [one for one in series if one.contender == OWN]
    others = [one for one in series if one.contender != OWN]
    return RowReport(row.name, row.title, verdicts(own, others, row.goals), list(series))


def this_machine() -> Machine:
    system = f"{platform.system()} {platform.release()}"
    memory = psutil.virtual_memory().total / 2**30
    return Machine(_processor(), usable_cores(), round(memory, 1), system, platform.python_version())


def cells(row: RowReport) -> list[tuple[str, ...]]:
    """The row's lines of the table, in the order of COLUMNS. A row without any peer still shows Octavo."""
    lines = [_line(row, verdict) for verdict in row.verdicts]
    if not lines:
        own = next((one for one in row.series if one.median is not None), None)
        lines = [(row.title, _rate(own), "", "", "", "", "", "")]
    return [lines[0], *(("", *line[1:]) for line in lines[1:])]


def markdown(comparison: Comparison) -> str:
    """The whole report as a page: the table, and below it what was run on what."""
    machine = comparison.machine
    rows = [line for row in comparison.rows for line in cells(row)]
    table = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    table += ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in rows]
    versions = sorted({f"{name} {version}" for row in comparison.rows for name, version in _versions(row)})
    quick = (
        " Quick: token counts and users are cut down, so that these figures say nothing." if comparison.quick else ""
    )
    return "\n".join(
        [
            f"{comparison.model}, {comparison.threads} threads each, medians of {comparison.rounds} rounds in turns, "
            f"ratios within rounds.{quick}",
            "",
            *table,
            "",
            f"- Command: `{comparison.command}`",
            f"- Machine: {machine.processor}, {machine.cores} cores, {machine.memory_gib:g} GiB; {machine.system}; "
            f"Python {machine.python}",
            f"- Versions: {', '.join(versions)}",
            *disturbances(comparison),
            "",
        ]
    )


def disturbances(comparison: Comparison) -> list[str]:
    """A line that says that the machine was busy; none when it was calm."""
    worst = max((one.disturbance for row in comparison.rows for one in row.series), default=0.0)
    if worst <= CALM:
        return []
    return [f"- The machine was not calm: during a run other programs used up to {worst:.0%} of its processors"]


def sweep_points(comparison: Comparison) -> dict[str, list[tuple[int, float]]]:
    """For each contender its best tokens per second at each number of users of the sweep."""
    users_of = {row.name: row.work.users for row in SWEEP if isinstance(row.work, Generate)}
    points: dict[str, list[tuple[int, float]]] = {}
    for row in comparison.rows:
        if row.name not in users_of:
            continue
        for contender in dict.fromkeys(one.contender for one in row.series):
            medians = [one.median for one in row.series if one.contender == contender and one.median is not None]
            if medians:
                points.setdefault(contender, []).append((users_of[row.name], max(medians)))
    return points


def _line(row: RowReport, verdict: Verdict) -> tuple[str, ...]:
    other = verdict.other
    peer = verdict.peer if other is None else f"{verdict.peer} ({other.label})"
    return (
        row.title,
        _rate(verdict.own),
        peer,
        _rate(other),
        _one_line(verdict.reason) if verdict.reason else _ratio(verdict),
        "" if verdict.must is None else f"{verdict.must:g}x",
        "" if verdict.aim is None else f"{verdict.aim:g}x",
        verdict.word,
    )


def _one_line(reason: str) -> str:
    """Peers' errors may be pages long; the JSON report has them whole."""
    return textwrap.shorten(reason, REASON_CHARACTERS, placeholder=" …")


def _ratio(verdict: Verdict) -> str:
    found = verdict.ratio
    if found is None:
        return "no round in which both ran"
    return f"{found.median:.2f}x ({found.low:.2f}-{found.high:.2f})"


def _rate(series: Series | None) -> str:
    return "n/a" if series is None or series.median is None else f"{series.median:.1f}"


def _versions(row: RowReport) -> list[tuple[str, str]]:
    return [pair for one in row.series for pair in one.versions.items()]


def _processor() -> str:
    """The processor's own name; Python knows it on few systems."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine()
