"""Engine factories that misbehave while loading. Imported by the engine child."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from octavo.config import Resolved
from octavo.core.engine import Engine
from octavo.errors import ConfigError
from octavo.sim.build import build_sim_engine

Progress = Callable[[str, int, int], None]


def prints(payload: dict[str, Any], progress: Progress) -> tuple[Engine, Resolved]:
    """Writes to standard output, as libraries do, and reads standard input, as they should not."""
    print("loading ...")
    os.write(1, b"\x00" * 1000)
    assert os.read(0, 1) == b""
    return build_sim_engine(payload, progress)


def reports_often(payload: dict[str, Any], progress: Progress) -> tuple[Engine, Resolved]:
    for done in range(10_000):
        progress("tensors", done, 10_000)
    return build_sim_engine(payload, progress)


def raises(payload: dict[str, Any], progress: Progress) -> tuple[Engine, Resolved]:
    raise ZeroDivisionError("a bug in loading")


def is_killed(payload: dict[str, Any], progress: Progress) -> tuple[Engine, Resolved]:
    """As by the operating system when memory runs out. Counts its lives in the file `payload["lives"]`."""
    with Path(payload["lives"]).open("a") as lives:
        lives.write("x")
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def loads_once(payload: dict[str, Any], progress: Progress) -> tuple[Engine, Resolved]:
    """Loads if the file `payload["mark"]` does not exist, and makes it."""
    mark = Path(payload.pop("mark"))
    if mark.exists():
        raise ConfigError("the memory went to somebody else")
    mark.touch()
    return build_sim_engine(payload, progress)
