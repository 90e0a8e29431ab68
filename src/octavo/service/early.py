"""EarlyEngine: an engine process spawned before it is known what it shall load, so that its interpreter starts and
imports while the front end does the same, and that loads while the front end imports what it serves with. Who never
gets to use it, ends it.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from types import TracebackType
from typing import Self

import msgspec

from octavo.service.frames import write_frame
from octavo.service.messages import Start
from octavo.service.process import spawn


class EarlyEngine:
    """`with EarlyEngine(factory) as early: EngineClient(factory, payload, early=early)`. EngineUnavailable if the
    operating system refuses. A child that nobody took sees the end of its pipe and leaves."""

    def __init__(self, factory: str) -> None:
        self._child: subprocess.Popen[bytes] | None = spawn(factory)

    def order(self, start: Start) -> None:
        """Tell it what to load. What it says in return waits in the pipe for the taker."""
        assert self._child is not None
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):  # it has died, which the taker sees
            write_frame(self._child.stdin.fileno(), msgspec.msgpack.encode(start))

    def take(self) -> subprocess.Popen[bytes] | None:
        """The child, whose end is then the taker's business; None from the second time on."""
        child, self._child = self._child, None
        return child

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if (child := self.take()) is not None:
            with child:  # closes the pipes and waits
                pass
