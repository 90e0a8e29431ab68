"""Fixtures of the command line's tests: a store of one's own, and the real `octavo` command as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Octavo = Callable[..., subprocess.Popen[str]]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The empty model store that every command of this test finds; tables are not wrapped."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "cache" / "octavo" / "models"


@pytest.fixture
def octavo() -> Octavo:
    """octavo("list", ...) starts the command with piped output. One thread of arithmetic is enough for tiny models."""

    def start(*arguments: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "octavo", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )

    return start
