"""The report as a page, as JSON and as a plot: what is in it, and that it is well-formed."""

import xml.etree.ElementTree as ElementTree

import msgspec
import pytest

from octavo.bench.compare.compare import choose_rows
from octavo.bench.compare.plot import TOP, plot_users
from octavo.bench.compare.ratios import Series
from octavo.bench.compare.report import COLUMNS, Comparison, cells, markdown, row_report, sweep_points, this_machine
from octavo.bench.compare.workloads import LLAMA_CPP, OPENVINO, OWN, PEERS, ROWS, SWEEP
from octavo.errors import BenchError

SVG = "{http://www.w3.org/2000/svg}"


def comparison(*series_of_rows: tuple[str, list[Series]]) -> Comparison:
    rows = {row.name: row for row in (*ROWS, *SWEEP)}
    return Comparison(
        model="smollm2",
        threads=2,
        rounds=3,
        seed=0,
        quick=False,
        command="octavo bench compare",
        machine=this_machine(),
        rows=[row_report(rows[name], series) for name, series in series_of_rows],
    )


def measured(contender: str, *rates: float, label: str = "as given", **versions: str) -> Series:
    return Series(contender=contender, label=label, rates=list(rates), versions=versions)


def test_every_goal_names_a_peer_of_its_row() -> None:
    assert len({row.name for row in (*ROWS, *SWEEP)}) == len(ROWS) + len(SWEEP)
    for row in ROWS:
        assert row.goals, row.name
        assert set(row.peers) <= set(PEERS)
        assert {goal.peer for goal in row.goals} <= {"best", *row.peers}
        assert all(1.0 <= goal.must < goal.aim for goal in row.goals)
        for entries in (row.own, *row.peers.values()):
            assert len({entry.label for entry in entries}) == len(entries) > 0, "each way has a name of its own"


def test_rows_are_chosen_by_name() -> None:
    assert choose_rows([], sweep=False) == list(ROWS)
    assert choose_rows([], sweep=True) == list(SWEEP)
    assert [row.name for row in choose_rows(["prefill", "single", "prefill"], sweep=False)] == ["prefill", "single"]
    with pytest.raises(BenchError, match="no row 'decode-24'; rows are single,"):
        choose_rows(["decode-24"], sweep=False)


def test_the_page_has_a_line_for_each_peer_with_goal_and_verdict() -> None:
    series = [
        measured(OWN, 2000.0, 2100.0, octavo="1.0"),
        measured(OPENVINO, 1600.0, 1500.0, label="as given, kv f16"),
        Series(contender=LLAMA_CPP, label="", failure="not found | really"),
    ]
    page = markdown(comparison(("prefill", series)))
    table = [line for line in page.splitlines() if line.startswith("|")]
    assert table[0] == "| " + " | ".join(COLUMNS) + " |"
    assert table[2] == (
        "| prefill of 512 tokens | 2050.0 | openvino (as given, kv f16) | 1550.0 | 1.32x (1.25-1.40) "
        "| 1.1x | 1.35x | must |"
    )
    assert table[3] == "|  | 2050.0 | llama.cpp | n/a | not found \\| really |  |  | n/a |"
    assert "- Versions: octavo 1.0" in page
    assert "- Command: `octavo bench compare`" in page


def test_a_row_without_peers_shows_octavo_alone() -> None:
    (line,) = cells(comparison(("single", [measured(OWN, 20.0)])).rows[0])
    assert line[:3] == ("single-stream decode, the same file", "20.0", "")


def test_a_busy_machine_is_told() -> None:
    calm = Series(contender=OWN, label="as given", rates=[20.0], disturbance=0.02)
    busy = Series(contender=LLAMA_CPP, label="as given", rates=[10.0], disturbance=0.31)
    assert "not calm" not in markdown(comparison(("single", [calm])))
    assert "other programs used up to 31% of its processors" in markdown(comparison(("single", [calm, busy])))


def test_json_holds_every_rate() -> None:
    report = comparison(("single", [measured(OWN, 20.0, 21.5), measured(LLAMA_CPP, 10.0)]))
    back = msgspec.json.decode(msgspec.json.encode(report), type=Comparison)
    assert back == report
    assert back.rows[0].series[0].rates == [20.0, 21.5]


def test_the_plot_takes_each_contenders_best_and_only_the_sweep() -> None:
    report = comparison(
        ("single", [measured(OWN, 99.0)]),
        ("users-1", [measured(OWN, 10.0), measured(LLAMA_CPP, 4.0, label="a"), measured(LLAMA_CPP, 5.0, label="b")]),
        ("users-8", [measured(OWN, 40.0), Series(contender=LLAMA_CPP, label="a", failure="broke")]),
    )
    assert sweep_points(report) == {OWN: [(1, 10.0), (8, 40.0)], LLAMA_CPP: [(1, 5.0)]}


def test_the_plot_is_well_formed_and_higher_rates_lie_higher() -> None:
    drawing = plot_users("a <title>", {"octavo": [(1, 100.0), (8, 400.0), (64, 900.0)], "p & q": [(1, 50.0)]})
    root = ElementTree.fromstring(drawing)
    circles = root.findall(f"{SVG}circle")
    assert len(circles) == 4
    x = [float(circle.attrib["cx"]) for circle in circles]
    y = [float(circle.attrib["cy"]) for circle in circles]
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.1), "8 is as far from 1 as 64 from 8"
    assert y[0] > y[1] > y[2] >= TOP, "more tokens per second are further up, and within the picture"
    assert x[3] == x[0]
    texts = [text.text for text in root.findall(f"{SVG}text")]
    assert {"a <title>", "octavo", "p & q", "1", "8", "64"} <= set(texts)
    assert "octavo, 8 users: 400 tok/s" in drawing


def test_a_plot_of_one_point_and_of_nothing() -> None:
    for lines in ({"octavo": [(4, 3.0)]}, {}):
        ElementTree.fromstring(plot_users("title", lines))


def test_an_error_of_many_lines_stays_in_its_cell() -> None:
    series = [measured(OWN, 2000.0), Series(contender=OPENVINO, label="", failure="Exception:\nno such type\n" * 30)]
    [line] = cells(comparison(("prefill", series)).rows[0])
    assert line[4].startswith("Exception: no such type Exception:")
    assert line[4].endswith(" …")
    assert "\n" not in line[4]
    assert len(line[4]) <= 160
