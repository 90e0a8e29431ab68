"""What every download into the store shares: progress, free space, and what a failing disk is called."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from octavo.errors import StoreError

POLL_SECONDS = 0.2
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class Progress(Protocol):
    """Told how far a download is, in bytes. Called from any thread; `total_bytes` is 0 while it is unknown."""

    def __call__(self, label: str, done_bytes: int, total_bytes: int) -> None: ...


def silent(label: str, done_bytes: int, total_bytes: int) -> None:
    """The Progress that shows nothing."""


def require_space(directory: Path, needed_bytes: int, what: str) -> None:
    """StoreError unless the file system of `directory` has `needed_bytes` free."""
    if shutil.disk_usage(directory).free < needed_bytes:
        raise _disk_full(directory, needed_bytes, what)


@contextmanager
def disk_errors(directory: Path, needed_bytes: int, what: str) -> Iterator[None]:
    """Turns an OSError of the work inside into a StoreError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise _disk_full(directory, needed_bytes, what) from error
        raise StoreError(f"{what}: cannot write to {directory}: {error}") from error


@contextmanager
def watched(directory: Path, label: str, total_bytes: int, progress: Progress) -> Iterator[None]:
    """While the work inside runs, reports how many bytes `directory` holds: for downloaders that tell nothing."""
    done = threading.Event()

    def report() -> None:
        while not done.wait(POLL_SECONDS):
            progress(label, min(bytes_in(directory), total_bytes), total_bytes)

    progress(label, min(bytes_in(directory), total_bytes), total_bytes)
    watcher = threading.Thread(target=report, name="download-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
    progress(label, total_bytes, total_bytes)


def bytes_in(directory: Path) -> int:
    """Sum of the sizes of all files below `directory`, some of which may vanish meanwhile."""
    total = 0
    for folder, _, names in os.walk(directory):  # unlike rglob, it takes a folder's vanishing as its end
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def _disk_full(directory: Path, needed_bytes: int, what: str) -> StoreError:
    free = shutil.disk_usage(directory).free
    needed = f"{needed_bytes / 1e6:.0f} MB needed, " if needed_bytes else ""
    return StoreError(
        f"{what}: the disk of {directory} is too full: {needed}{free / 1e6:.0f} MB free. "
        "Free some space, or point XDG_CACHE_HOME to a disk that has it."
    )
