"""Text work (templates, tokenizing) that must not hold up the event loop. Owns where it runs: short texts at once,
long ones in one of a few threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

# About a millisecond of tokenizing; a thread costs a tenth of that.
INLINE_BYTES = 4096
THREADS = 2

T = TypeVar("T")


class TextWork:
    """At most THREADS long texts are worked on at once; more wait their turn. The tokenizer releases the GIL."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="text")

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """The result of `work`, whose input has `size` bytes. Raises what it raises."""
        if size <= INLINE_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Drop what waits; a text in work is finished and forgotten."""
        self._threads.shutdown(wait=False, cancel_futures=True)
