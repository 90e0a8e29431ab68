"""Fixtures of the command line's tests: a store of one's own, and the real `octavo` command as a process."""

from __future__ import annotations

from pathlib import Path

import pytest
from octavo_process import Octavo, start_octavo


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The empty model store that every command of this test finds; tables are not wrapped."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "cache" / "octavo" / "models"


@pytest.fixture
def octavo() -> Octavo:
    """Starts the command in this test's environment."""
    return start_octavo
