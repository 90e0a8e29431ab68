"""Where commands write: results to standard output, progress and errors to standard error. Owns how tables,
bars and failures look, and nothing of what they are about.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

PIPE_WIDTH = 200


def output() -> Console:
    """Standard output, as it is now (tests and pipes replace it). A file or pipe has no edge to wrap at."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def diagnostics() -> Console:
    """Standard error."""
    return Console(stderr=True, highlight=False)


def print_error(message: str) -> None:
    """One clear red line; no traceback."""
    diagnostics().print(Text.assemble(("error: ", "bold red"), (message, "red")), soft_wrap=True)


def plain_table(*columns: str) -> Table:
    """A table without lines. Columns without a name make one without a header."""
    from rich.table import Table

    return Table(*columns, box=None, pad_edge=False, show_header=any(columns), padding=(0, 2, 0, 0))


def print_table(title: str, table: Table) -> None:
    console = output()
    console.print(f"[bold]{escape(title)}[/]", soft_wrap=True)
    console.print(table)


def counted_progress() -> Progress:
    """A bar for work counted in pieces, gone when it is done. None where standard error is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=diagnostics(),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def report_file(path: Path | None) -> Path | None:
    """Callback of options that name a file for results: what cannot be written is said before anything is measured."""
    if path is None:
        return None
    directory = path.absolute().parent
    if not directory.is_dir():
        raise typer.BadParameter(f"there is no directory {directory}")
    if not os.access(path if path.exists() else directory, os.W_OK):
        raise typer.BadParameter(f"{path} cannot be written")
    return path


JsonFile = Annotated[
    Path | None,
    typer.Option("--json", help="Also write the numbers to this file.", dir_okay=False, callback=report_file),
]


def write_json(path: Path, numbers: Any) -> None:
    """Write structs of numbers to a file, for other programs."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(numbers)) + b"\n")
