"""Runs the rows: every contender in turn, several rounds, one at a time on an otherwise idle machine. What goes wrong
with one contender is written down in its series and costs the others nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.bench.chats import OUTPUT_LENGTHS, PROMPT_LENGTHS
from octavo.bench.compare.contender import Contender, ContenderFailed, ContenderHung, JobFailed
from octavo.bench.compare.disturbance import CALM, Disturbance
from octavo.bench.compare.files import ModelFiles, ModelSize, NoSuchFormat
from octavo.bench.compare.find import Peer
from octavo.bench.compare.ratios import Series
from octavo.bench.compare.workloads import LLAMA_CPP, OWN, Chats, Entry, Generate, Row

KEPT_WAYS = 2  # of those that a contender has for a row, the fastest in a first run go through the rounds
QUICK_LENGTH = 24


@dataclass(frozen=True, slots=True)
class Conditions:
    """What holds for a whole comparison. `options` are Octavo's own, `timeout_s` bounds one job."""

    threads: int
    rounds: int
    seed: int = 0
    quick: bool = False
    timeout_s: float = 600.0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Way:
    """A contender, an entry of the row, and what came of it so far."""

    contender: Contender
    entry: Entry
    job: dict[str, Any] = field(default_factory=dict)
    rates: list[float | None] = field(default_factory=list)
    first: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    failure: str | None = None
    restarts: int = 0
    disturbance: float = 0.0

    def series(self) -> Series:
        return Series(
            contender=self.contender.name,
            label=self.entry.label,
            rates=self.rates,
            first=self.first,
            settings=self.settings,
            versions=self.versions,
            failure=self.failure,
            restarts=self.restarts,
            disturbance=round(self.disturbance, 3),
        )


class Rounds:
    """`say` gets a line of progress after each run."""

    def __init__(
        self,
        contenders: Sequence[Peer],
        files: ModelFiles,
        size: ModelSize,
        conditions: Conditions,
        say: Callable[[str], None],
    ) -> None:
        self._peers = {peer.name: peer for peer in contenders}
        self._files = files
        self._size = size
        self._conditions = conditions
        self._say = say
        self._given_up: dict[str, str] = {}

    def run(self, row: Row) -> list[Series]:
        """Everything measured for a row: Octavo's series first, then those of the peers that are in this comparison."""
        entries = {OWN: row.own, **row.peers}
        absent = []
        with ExitStack() as stack:
            ways: list[Way] = []
            for name, own_entries in entries.items():
                if name not in self._peers:
                    continue
                peer = self._peers[name]
                if reason := peer.missing or self._given_up.get(name):
                    absent.append(Series(contender=name, label="", failure=reason))
                    continue
                contender = stack.enter_context(Contender(name, peer.command))
                ways += [self._way(row, contender, entry) for entry in own_entries]
            if isinstance(row.work, Generate):
                self._screen(row, ways)
            self._measure(row, ways)
        return [*(way.series() for way in ways), *absent]

    def _way(self, row: Row, contender: Contender, entry: Entry) -> Way:
        way = Way(contender, entry)
        try:
            path = self._files.path_of(entry.format)
        except NoSuchFormat as error:
            way.failure = str(error)
            return way
        work = row.work.scaled(self._conditions.quick)
        if not self._conditions.quick and row.context_tokens > self._size.context_length:
            context = self._size.context_length
            way.failure = f"needs a context of {row.context_tokens} tokens; the model has {context}"
        way.job = {
            "model": str(path),
            "threads": self._conditions.threads,
            "seed": self._conditions.seed,
            "vocab": self._size.vocab,
            "settings": dict(entry.settings),
            "keep": True,
            **_work_fields(work, self._conditions),
        }
        if contender.name == OWN:
            way.job["options"] = dict(self._conditions.options)
        return way

    def _screen(self, row: Row, ways: list[Way]) -> None:
        """Run everything once, which also warms it up, and leave out all but the fastest of each contender."""
        by_contender: dict[str, list[Way]] = {}
        for way in ways:
            by_contender.setdefault(way.contender.name, []).append(way)
        for own in by_contender.values():
            for way in own:
                if not way.entry.slow:
                    # Where a choice is made, each way gives its memory back until it is known who goes on.
                    way.first = self._one(row, way, ways, keep=len(own) <= KEPT_WAYS)
            ranked = sorted((way for way in own if way.first is not None), key=lambda way: way.first or 0.0)
            for way in ranked[:-KEPT_WAYS]:
                way.job = {}

    def _measure(self, row: Row, ways: list[Way]) -> None:
        for number in range(self._conditions.rounds):
            order = [way for way in ways if way.job and not (way.entry.slow and number)]
            for way in order if number % 2 == 0 else reversed(order):
                rate = self._one(row, way, ways, keep=True)
                way.rates.append(rate)

    def _one(self, row: Row, way: Way, ways: Sequence[Way], *, keep: bool) -> float | None:
        """Run a way once. None, and a failure written down, when that did not work; it is not tried again."""
        if way.failure is not None:
            return None
        others = Disturbance(way.contender.pid)
        try:
            measurement = way.contender.run({**way.job, "keep": keep}, self._conditions.timeout_s)
            rate = row.metric.rate(measurement.figures)
        except JobFailed as error:
            way.failure = str(error)
        except ContenderFailed as error:
            for other in ways:
                if other.contender is way.contender and other.failure is None:
                    other.failure = str(error)
            if isinstance(error, ContenderHung):  # it would take as long in every row
                self._given_up[way.contender.name] = f"given up in row {row.name}: {error}"
        except (KeyError, ZeroDivisionError):
            way.failure = f"its figures lack what {row.metric} needs"
        if way.failure is not None:
            self._say(f"{row.name}: {way.contender.name} ({way.entry.label}): {way.failure}")
            return None
        way.settings, way.versions = measurement.settings, measurement.versions
        share = others.share(way.contender.pid)
        way.disturbance = max(way.disturbance, share)
        busy = f" (other programs used {share:.0%} of the machine)" if share > CALM else ""
        self._say(f"{row.name}: {way.contender.name} ({way.entry.label}): {rate:.1f} tok/s{busy}")
        way.restarts += not way.contender.settle()
        return rate


def quantizer(llama_cpp: Peer, conditions: Conditions) -> Callable[[Path, Path, str], None] | None:
    """Makes files in other formats with the llama.cpp that was found; None without one."""
    if llama_cpp.missing:
        return None

    def quantize(source: Path, target: Path, format: str) -> None:
        with Contender(LLAMA_CPP, llama_cpp.command) as contender:
            job = {"kind": "quantize", "model": str(source), "target": str(target), "format": format}
            contender.run({**job, "threads": conditions.threads}, conditions.timeout_s)

    return quantize


def _work_fields(work: Generate | Chats, conditions: Conditions) -> dict[str, Any]:
    if isinstance(work, Generate):
        return {
            "kind": "generate",
            "users": work.users,
            "prompt_tokens": work.prompt_tokens,
            "output_tokens": work.output_tokens,
            "keep_prompts": work.keep_prompts,
        }
    return {"kind": "chats", "keep_prompts": False, "lengths": chat_lengths(work, conditions)}


def chat_lengths(work: Chats, conditions: Conditions) -> list[list[tuple[int, int]]]:
    """For every user the prompt and output tokens of its chats, as `bench serve` draws them."""
    rng = random.Random(conditions.seed)
    lengths = [
        [(PROMPT_LENGTHS.draw(rng), OUTPUT_LENGTHS.draw(rng)) for _ in range(work.per_user)] for _ in range(work.users)
    ]
    if conditions.quick:
        return [
            [(min(prompt, QUICK_LENGTH), min(output, QUICK_LENGTH // 2)) for prompt, output in own] for own in lengths
        ]
    return lengths
