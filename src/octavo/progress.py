"""Progress on the terminal: bytes while a model loads, prompts while a batch runs. Shows nothing where standard error
is no terminal, unless asked to. rich is imported only to show something.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID


class _Bar:
    """A rich progress display, or nothing. With `stays` its last state remains on the screen."""

    def __init__(self, shown: bool | None, columns: Callable[[], list[ProgressColumn]], *, stays: bool) -> None:
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._columns = columns
        self._stays = stays
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        if self._shown:
            from rich.console import Console
            from rich.progress import Progress

            self._progress = Progress(*self._columns(), console=Console(stderr=True), transient=not self._stays)
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()


class LoadBar(_Bar):
    """One line per label (download, load), in bytes."""

    def __init__(self, shown: bool | None = None) -> None:
        super().__init__(shown, _byte_columns, stays=False)
        self._tasks: dict[str, TaskID] = {}

    def update(self, label: str, done: int, total: int) -> None:
        if self._progress is None:
            return
        if label not in self._tasks:
            self._tasks[label] = self._progress.add_task(label)
        self._progress.update(self._tasks[label], completed=done, total=total or None)


class BatchBar(_Bar):
    """Finished prompts of a batch, and tokens per second. One prompt alone gets no bar unless asked for."""

    def __init__(self, total: int, shown: bool | None = None) -> None:
        super().__init__(False if shown is None and total < 2 else shown, _batch_columns, stays=True)
        self._total = total
        self._tokens = 0
        self._since = time.perf_counter()
        self._task: TaskID | None = None

    def update(self, done: int, new_tokens: int) -> None:
        if self._progress is None:
            return
        self._tokens += new_tokens
        if self._task is None:
            self._task = self._progress.add_task("generating", total=self._total, speed=0.0)
        speed = self._tokens / max(time.perf_counter() - self._since, 1e-9)
        self._progress.update(self._task, completed=done, speed=speed)


def _byte_columns() -> list[ProgressColumn]:
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn

    return [TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()]


def _batch_columns() -> list[ProgressColumn]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    speed = TextColumn("{task.fields[speed]:.1f} tok/s")
    return [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), speed, TimeRemainingColumn()]
