"""`octavo bench compare`: the comparison with other engines on the terminal, as markdown, JSON and a plot."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.markup import escape

from octavo.cli.console import JsonFile, diagnostics, output, plain_table, print_table, report_file, write_json
from octavo.cli.options import configured
from octavo.config import EngineConfig
from octavo.progress import LoadBar

if TYPE_CHECKING:
    from octavo.bench.compare.report import Comparison

COLOURS = {"aim": "green", "must": "yellow", "missed": "red"}


@configured(model="argument")
def compare(
    engine: EngineConfig,
    row: Annotated[
        list[str] | None, typer.Option(help="A row of the table, such as decode-23; repeatable. Default: all.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="How often each takes its turn.", min=1)] = 3,
    peer: Annotated[
        list[str] | None,
        typer.Option(help="NAME=PATH of a peer's interpreter, or of the program llama-server; repeatable."),
    ] = None,
    peers_in: Annotated[
        list[Path] | None, typer.Option(help="A directory of virtual environments to look for peers in; repeatable.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Compare with this peer only, such as openvino; repeatable.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few tokens and users: does it work at all?")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that one run may take.", min=1)] = 900.0,
    scratch: Annotated[
        Path | None, typer.Option(help="Where files in other formats are kept. Default: beside the model store.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random prompts.")] = 0,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write the table to this file.", dir_okay=False, callback=report_file)
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Measure 1 to 64 users and draw them into this SVG file.", dir_okay=False, callback=report_file
        ),
    ] = None,
    json: JsonFile = None,
) -> None:
    """Measure Octavo and other engines on this machine in turns, each in a process of its own."""
    from octavo.bench.compare.compare import choose_rows
    from octavo.bench.compare.compare import compare as run
    from octavo.bench.compare.find import find_peers
    from octavo.bench.compare.report import markdown as page
    from octavo.bench.compare.rounds import Conditions
    from octavo.checkpoint.store import Store, default_store_dir
    from octavo.runner.cores import usable_cores

    rows = choose_rows(row or [], sweep=plot is not None)
    peers = find_peers(peer or [], peers_in or [], only)
    with LoadBar() as bar:
        path = Store(default_store_dir()).resolve(engine.model, offline=engine.offline, progress=bar.update)
    conditions = Conditions(
        threads=engine.threads or usable_cores(),
        rounds=rounds,
        seed=seed,
        quick=quick,
        timeout_s=timeout,
        options=_own_options(engine),
    )
    comparison = run(
        path,
        engine.model,
        rows,
        peers,
        conditions,
        scratch=scratch or default_store_dir().parent / "bench",
        command=shlex.join(["octavo", *sys.argv[1:]]),
        say=lambda line: diagnostics().print(f"[dim]{escape(line)}[/]", soft_wrap=True),
    )
    _print(comparison)
    if markdown is not None:
        markdown.write_text(page(comparison), encoding="utf-8")
    if plot is not None:
        _write_plot(plot, comparison)
    if json is not None:
        write_json(json, comparison)


def _own_options(engine: EngineConfig) -> dict[str, object]:
    """What the user asked of Octavo beyond what a comparison decides itself."""
    decided = {"model", "threads", "max_running", "chunk", "max_len", "prefix_cache"}
    return {
        field.name: value
        for field in msgspec.structs.fields(EngineConfig)
        if field.name not in decided and (value := getattr(engine, field.name)) != field.default
    }


def _print(comparison: Comparison) -> None:
    from octavo.bench.compare.report import COLUMNS, cells, disturbances

    table = plain_table(*COLUMNS)
    for row in comparison.rows:
        for *line, word in cells(row):
            colour = COLOURS.get(word)
            table.add_row(*map(escape, line), f"[{colour}]{word}[/]" if colour else word)
    title = f"{comparison.model}: {comparison.threads} threads each, medians of {comparison.rounds} rounds in turns"
    print_table(title, table)
    for line in disturbances(comparison):
        output().print(line.removeprefix("- "))
    if comparison.quick:
        output().print("--quick: token counts and users are cut down; these figures say nothing about speed")


def _write_plot(path: Path, comparison: Comparison) -> None:
    from octavo.bench.compare.plot import plot_users
    from octavo.bench.compare.report import sweep_points

    title = f"{comparison.model}: 128 prompt and 64 output tokens each, {comparison.threads} threads"
    path.write_text(plot_users(title, sweep_points(comparison)), encoding="utf-8")
