"""A measurement that is terminated ends as by Ctrl-C, so that it leaves no child process behind."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Within the block SIGTERM raises KeyboardInterrupt. Does nothing outside the main thread, where signals cannot be
    had."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        if usual is not None:
            signal.signal(signal.SIGTERM, usual)
