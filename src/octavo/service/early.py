"""EarlyEngine: an engine process spawned before it is known what it shall load, so that its interpreter starts and
imports while the front end does the same. Who never gets to use it, ends it.
"""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import Self

from octavo.service.process import spawn


class EarlyEngine:
    """`with EarlyEngine(factory) as early: EngineClient(factory, payload, early=early)`. EngineUnavailable if the
    operating system refuses. A child that nobody took sees the end of its pipe and leaves."""

    def __init__(self, factory: str) -> None:
        self._child: subprocess.Popen[bytes] | None = spawn(factory)

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
