"""Where commands write: results to standard output, progress and errors to standard error. Owns how a number of
bytes, a progress bar and a failure look, and nothing of what they are about.
"""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.text import Text


def output() -> Console:
    """Standard output, as it is now (tests and pipes replace it)."""
    return Console(highlight=False)


def diagnostics() -> Console:
    """Standard error."""
    return Console(stderr=True, highlight=False)


def print_error(message: str) -> None:
    """One clear red line; no traceback."""
    diagnostics().print(Text.assemble(("error: ", "bold red"), (message, "red")), soft_wrap=True)


def bytes_progress() -> Progress:
    """A bar for work counted in bytes, gone when it is done."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=diagnostics(),
        transient=True,
    )
