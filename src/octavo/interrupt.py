"""Ctrl-C that waits: an engine step must not be torn apart between its plan and its commit."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class InterruptLater:
    """Within the `with` block SIGINT is only noted; it takes its usual effect when the block is left.

    Does nothing outside the main thread, where Python delivers no signals, or where the handler is not Python's.
    """

    def __init__(self) -> None:
        self._usual: Any = None
        self._noted = False

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._usual = signal.getsignal(signal.SIGINT)
            if self._usual is not None:
                signal.signal(signal.SIGINT, self._note)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._usual is not None:
            signal.signal(signal.SIGINT, self._usual)
            if self._noted:
                signal.raise_signal(signal.SIGINT)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._noted = True
