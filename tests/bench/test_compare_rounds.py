"""The order of the rounds, and that a peer which fails costs the others nothing. All contenders are fakes."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from octavo.bench.compare.contender import JobFailed
from octavo.bench.compare.files import ModelFiles, ModelSize, NoSuchFormat
from octavo.bench.compare.find import Peer
from octavo.bench.compare.ratios import Series
from octavo.bench.compare.report import cells, row_report
from octavo.bench.compare.rounds import Conditions, Rounds, chat_lengths
from octavo.bench.compare.workloads import (
    AS_GIVEN,
    LLAMA_CPP,
    OPENVINO,
    OWN,
    TRANSFORMERS,
    Chats,
    Entry,
    Generate,
    Goal,
    Metric,
    Row,
)

SMALL = Generate(1, 8, 4)
FAKE = Path(__file__).parent / "fake_peer.py"


def fake(name: str, behaviour: str, rate: float = 100.0) -> Peer:
    return Peer(name, (sys.executable, str(FAKE), behaviour, str(rate)))


def row(peers: dict[str, tuple[Entry, ...]], *, work: Generate | Chats = SMALL, name: str = "row") -> Row:
    return Row(name, "a row", work, Metric.DECODE, (Entry(),), peers, (Goal(OPENVINO, 2.0, 3.0),))


class Comparing:
    """Runs rows with given contenders on a model that nobody reads, and keeps what was said."""

    def __init__(self, directory: Path) -> None:
        self.files = ModelFiles(directory / "model.gguf", directory, None)
        self.said: list[str] = []

    def rounds(self, contenders: Sequence[Peer], **conditions: Any) -> Rounds:
        settings = Conditions(**{"threads": 1, "rounds": 2, "timeout_s": 30.0, **conditions})
        return Rounds(contenders, self.files, ModelSize(1000, 2048), settings, self.said.append)

    def turns(self) -> list[str]:
        """Who ran, in order."""
        return [line.split(": ")[1].split(" (")[0] for line in self.said]


@pytest.fixture
def bench(tmp_path: Path) -> Comparing:
    return Comparing(tmp_path)


def by_name(series: Sequence[Series]) -> dict[str, Series]:
    return {one.contender: one for one in series}


def test_contenders_take_turns_and_the_order_turns_round(bench: Comparing) -> None:
    contenders = [fake(OWN, "works", 300), fake(OPENVINO, "works", 100)]
    series = by_name(bench.rounds(contenders, rounds=3).run(row({OPENVINO: (Entry(),)})))
    assert bench.turns() == [OWN, OPENVINO, OWN, OPENVINO, OPENVINO, OWN, OWN, OPENVINO]
    assert series[OWN].rates == [300.0] * 3
    assert series[OPENVINO].rates == [100.0] * 3
    assert series[OPENVINO].versions == {"fake": "1.0"}


def test_the_two_fastest_ways_go_on(bench: Comparing) -> None:
    entries = tuple(Entry(settings={"rate": rate}) for rate in (10.0, 40.0, 20.0, 30.0))
    series = bench.rounds([fake(LLAMA_CPP, "scaled")]).run(row({LLAMA_CPP: entries}))
    assert [one.first for one in series] == [10.0, 40.0, 20.0, 30.0]
    assert [one.rates for one in series] == [[], [40.0, 40.0], [], [30.0, 30.0]]


def test_a_chat_load_is_not_run_beforehand_and_a_slow_way_only_once(bench: Comparing) -> None:
    contenders = [fake(OWN, "works"), fake(TRANSFORMERS, "works")]
    series = by_name(bench.rounds(contenders).run(row({TRANSFORMERS: (Entry(slow=True),)}, work=Chats(2, 1))))
    assert bench.turns() == [OWN, TRANSFORMERS, OWN]
    assert series[TRANSFORMERS].rates == [100.0]


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("crash", "exit code 139"),
        ("crash-later", "exit code 139"),
        ("garbage", "is no result"),
        ("refuses", "no such model here"),
        ("no-figures", "its figures lack"),
    ],
)
def test_a_failing_peer_gets_a_line_and_costs_the_others_nothing(bench: Comparing, behaviour: str, reason: str) -> None:
    contenders = [fake(OWN, "works", 300), fake(LLAMA_CPP, behaviour), fake(OPENVINO, "works", 100)]
    the_row = row({LLAMA_CPP: (Entry(),), OPENVINO: (Entry(),)})
    series = bench.rounds(contenders, rounds=3).run(the_row)
    named = by_name(series)
    assert named[OWN].rates == [300.0] * 3
    assert named[OPENVINO].rates == [100.0] * 3
    assert reason in (named[LLAMA_CPP].failure or "")
    lines = cells(row_report(the_row, series))
    assert lines[0][2:5] == ("openvino (as given)", "100.0", "3.00x (3.00-3.00)")
    if named[LLAMA_CPP].median is None:
        assert reason in lines[1][4]


def test_a_hanging_peer_is_not_asked_again_in_later_rows(bench: Comparing) -> None:
    rounds = bench.rounds([fake(OWN, "works"), fake(OPENVINO, "hang")], timeout_s=1.0)
    _, *first = rounds.run(row({OPENVINO: (Entry(), Entry(settings={"kv": "u8"}))}, name="one"))
    second = by_name(rounds.run(row({OPENVINO: (Entry(),)}, name="two")))
    assert [one.failure for one in first] == ["no answer within 1 s"] * 2
    assert second[OPENVINO].failure == "given up in row one: no answer within 1 s"
    assert second[OWN].rates == [100.0, 100.0]


def test_a_missing_peer_has_a_line_and_one_that_is_not_wanted_has_none(bench: Comparing) -> None:
    contenders = [fake(OWN, "works"), Peer(OPENVINO, missing="not found: look elsewhere")]
    the_row = row({OPENVINO: (Entry(),), LLAMA_CPP: (Entry(),)})
    lines = cells(row_report(the_row, bench.rounds(contenders).run(the_row)))
    assert [line[2:] for line in lines] == [(OPENVINO, "n/a", "not found: look elsewhere", "2x", "3x", "n/a")]


def test_a_context_that_the_model_lacks_is_said(bench: Comparing) -> None:
    long = row({}, work=Generate(1, 100_000, 64))
    (own,) = bench.rounds([fake(OWN, "works")]).run(long)
    assert "needs a context of 100064 tokens; the model has" in (own.failure or "")
    assert bench.said == []
    assert bench.rounds([fake(OWN, "works")], quick=True).run(long)[0].rates == [100.0, 100.0]


def test_formats_are_made_once_for_each_version_of_the_file(tmp_path: Path) -> None:
    made: list[str] = []

    def quantize(source: Path, target: Path, format: str) -> None:
        made.append(format)
        target.write_bytes(source.read_bytes() + format.encode())

    model = tmp_path / "model.gguf"
    model.write_bytes(b"model")
    for _ in range(2):  # a second comparison finds what the first one made
        files = ModelFiles(model, tmp_path / "scratch", quantize)
        assert files.path_of(AS_GIVEN) == model
        assert files.path_of("Q4_0").read_bytes() == b"modelQ4_0"
        assert files.path_of("BF16").read_bytes() == b"modelBF16"
    assert made == ["Q4_0", "BF16"]
    model.write_bytes(b"another")
    assert ModelFiles(model, tmp_path / "scratch", quantize).path_of("Q4_0").read_bytes() == b"anotherQ4_0"


def test_a_format_that_cannot_be_made_is_tried_once_and_leaves_nothing(bench: Comparing, tmp_path: Path) -> None:
    tried: list[str] = []

    def quantize(source: Path, target: Path, format: str) -> None:
        tried.append(format)
        target.write_bytes(b"half of it")
        raise JobFailed("disk full")

    model = tmp_path / "model.gguf"
    model.write_bytes(b"model")
    files = bench.files = ModelFiles(model, tmp_path / "scratch", quantize)
    for _ in range(2):
        with pytest.raises(NoSuchFormat, match="no Q4_0 file: disk full"):
            files.path_of("Q4_0")
    assert tried == ["Q4_0"]
    assert list((tmp_path / "scratch").iterdir()) == []
    series = by_name(bench.rounds([fake(OWN, "works"), fake(OPENVINO, "works")]).run(row({OPENVINO: (Entry("Q4_0"),)})))
    assert series[OPENVINO].failure == "no Q4_0 file: disk full"
    assert series[OWN].rates == [100.0, 100.0]


def test_chats_have_the_lengths_of_the_load_test_and_the_same_for_everybody() -> None:
    lengths = chat_lengths(Chats(23, 3), Conditions(threads=1, rounds=1, seed=5))
    assert lengths == chat_lengths(Chats(23, 3), Conditions(threads=2, rounds=9, seed=5))
    assert lengths != chat_lengths(Chats(23, 3), Conditions(threads=1, rounds=1, seed=6))
    assert [len(own) for own in lengths] == [3] * 23
    prompts = [prompt for own in lengths for prompt, _ in own]
    assert 16 <= min(prompts) < 100 < 160 < max(prompts) <= 1024
