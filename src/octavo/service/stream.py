"""Stream: the consumer's end of one request. Everything here happens in the event loop's thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from octavo.types import Output, Request


class Stream:
    """An async iterator of what arrived since the last look, for one consumer; it ends after the final Output of
    every choice. A consumer that is slow gets longer lists and holds up nobody. One that leaves early must abort().

    `submitted_s` and `first_token_s` (None before there is one) are readings of time.perf_counter(), taken when
    the request came and when the token did, however late it is looked at. `arrived` is set whenever something comes;
    a consumer of several streams gives them one event and take()s from each.
    """

    def __init__(
        self, request: Request, abort: Callable[[int | None], None], arrived: asyncio.Event | None = None
    ) -> None:
        self.request = request
        self.submitted_s = time.perf_counter()
        self.first_token_s: float | None = None
        self._abort = abort
        self._unfinished = request.params.n
        self._outputs: list[Output] = []
        self._arrived = asyncio.Event() if arrived is None else arrived

    @property
    def done(self) -> bool:
        """Every choice has had its final Output, looked at or not."""
        return self._unfinished == 0

    def abort(self, choice: int | None = None) -> None:
        """End the request or one of its choices. The final Output follows; nothing happens where it has come."""
        if not self.done:
            self._abort(choice)

    def push(self, output: Output) -> None:
        """Called by the client."""
        if self.first_token_s is None and output.tokens:
            self.first_token_s = time.perf_counter()
        if output.finish is not None:
            self._unfinished -= 1
        self._outputs.append(output)
        self._arrived.set()

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> list[Output]:
        while not self._outputs:
            if self.done:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self.take()

    def take(self) -> list[Output]:
        """What arrived since the last look, perhaps nothing."""
        outputs, self._outputs = self._outputs, []
        return outputs
