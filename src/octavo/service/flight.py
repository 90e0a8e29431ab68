"""Flight: one accepted request until all its choices have had their final event, over any number of engines.

Pure bookkeeping: what has been delivered, how to go on in a fresh engine, and how that engine's outputs look to a
consumer who must not notice. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from octavo.types import ErrorInfo, FinishReason, Output, Request, Usage


@dataclass(slots=True)
class Choice:
    """One answer. `tokens` are all generated so far; `cached_tokens` is what the first engine to answer reported."""

    index: int
    tokens: list[int]
    engine_id: str = ""  # the request's id in the engine that works on it
    cached_tokens: int | None = None
    aborting: bool = False  # the engine was asked to end it


class Flight:
    """`open` holds the choices without a final event. `deaths` counts engines in a row that died, may have worked
    on this request (blame.py decides), and brought it no token. `engine_ids` are its names in the engine that has
    it now, if any.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.open = {
            index: Choice(index, list(request.generated))
            for index in range(request.choice, request.choice + request.params.n)
        }
        self.deaths = 0
        self.engine_ids: list[str] = []
        self._whole = True  # no choice has begun or ended yet

    @property
    def least_rows(self) -> int:
        """Rows that the request takes at least while an engine computes it: choices that begin together share one
        until their prompt is computed."""
        return 1 if self._whole else len(self.open)

    def submissions(self, serials: Iterator[int]) -> list[Request]:
        """The requests that make an engine go on from here, with ids made unique by `serials`: the whole while no
        choice has begun, so that the choices share the prompt; else each open choice with its tokens so far."""
        request = self.request
        if self._whole:
            requests = [msgspec.structs.replace(request, id=f"{request.id}#{next(serials)}")]
            for choice in self.open.values():
                choice.engine_id = requests[0].id
        else:
            requests = [self._resume(choice, next(serials)) for choice in self.open.values()]
        self.engine_ids = [request.id for request in requests]
        return requests

    def deliver(self, output: Output) -> None:
        """Note an engine's output and make it the consumer's: original id, usage as if by one engine."""
        choice = self.open[output.choice]
        output.request_id = self.request.id
        if output.tokens:
            choice.tokens += output.tokens
            self.deaths = 0
            self._whole = False
        if output.usage is not None:
            self._settle_usage(choice, output, output.usage)
        if output.finish is not None:
            self._end(choice)

    def finish(self, choice: Choice, reason: FinishReason, error: ErrorInfo | None = None) -> Output:
        """End a choice that no engine works on any more."""
        self._end(choice)
        usage = Usage(len(self.request.prompt), len(choice.tokens), choice.cached_tokens or 0)
        return Output(self.request.id, choice.index, [], finish=reason, usage=usage, error=error)

    def _resume(self, choice: Choice, serial: int) -> Request:
        choice.engine_id = f"{self.request.id}#{serial}"
        return msgspec.structs.replace(
            self.request,
            id=choice.engine_id,
            params=msgspec.structs.replace(self.request.params, n=1),
            choice=choice.index,
            generated=list(choice.tokens),
        )

    def _settle_usage(self, choice: Choice, output: Output, usage: Usage) -> None:
        if choice.cached_tokens is None:
            choice.cached_tokens = usage.cached_tokens
        elif output.finish is None:
            output.usage = None  # the first output had it; this is the first one after a restart
            return
        output.usage = Usage(usage.prompt_tokens, usage.completion_tokens, choice.cached_tokens)

    def _end(self, choice: Choice) -> None:
        del self.open[choice.index]
        self._whole = False
