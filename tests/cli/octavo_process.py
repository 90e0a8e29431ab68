"""The real `octavo` command as a process, for tests of what only a process shows: signals, exit codes, output."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

Octavo = Callable[..., subprocess.Popen[str]]


def start_octavo(*arguments: str | Path) -> subprocess.Popen[str]:
    """start_octavo("list", ...) runs with piped output. One thread of arithmetic is enough for tiny models."""
    return subprocess.Popen(
        [sys.executable, "-m", "octavo", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
