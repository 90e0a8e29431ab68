"""From a validated request to its answer, whole or streamed: the part that chat and completions have in common.
How an answer is worded is the route's `Wording`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from octavo.server.disconnect import until_gone
from octavo.server.errors import JSONResponse, error_body
from octavo.server.openai import ErrorAnswer, GenerationRequest, UsageBody
from octavo.server.stream import DONE, EventStream, event
from octavo.service.error_info import revive
from octavo.text.answer import Delta
from octavo.types import FinishReason, TokenLogprob

# A stream's status line waits this long for the engine's first word, so that a refusal gets its own status.
FIRST_WORD_S = 5.0

logger = logging.getLogger("octavo.server")


@dataclass(slots=True)
class Choice:
    """One whole answer."""

    index: int
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: FinishReason = FinishReason.STOP
    stop: str | int | None = None


class Source(Protocol):
    """Where the words come from: `generation.Generation`, or what stands for it where nothing is computed."""

    choices: int

    async def deltas(self) -> list[Delta]: ...

    def usage(self) -> UsageBody: ...

    def close(self) -> None: ...


class Wording(Protocol):
    """The bodies of one route's answers, all structs of `openai.py`. Usage is None where nobody asked for it."""

    def opening(self, index: int, usage: UsageBody | None) -> Sequence[Any]:
        """Chunks that begin a choice."""

    def chunks(self, delta: Delta, usage: UsageBody | None) -> Sequence[Any]:
        """Chunks for a delta; exactly one with a finish_reason when the delta ends its choice."""

    def closing(self, usage: UsageBody) -> Any:
        """The chunk without choices that tells the usage."""

    def whole(self, choices: list[Choice], usage: UsageBody) -> Any:
        """The answer that is not streamed."""


async def reply(http: HTTPRequest, body: GenerationRequest, source: Source, wording: Wording) -> Response:
    """The answer that `source` gives, which is closed in the end. Raises what the engine refuses the request with,
    and ClientGone."""
    try:
        if not body.stream:
            choices = await until_gone(http.receive, _collect(source))
            source.close()
            return JSONResponse(wording.whole(choices, source.usage()))
        first = await until_gone(http.receive, _first_deltas(source))
    except BaseException:
        source.close()
        raise
    options = body.stream_options
    include_usage = options is not None and bool(options.include_usage)
    events = _events(
        source,
        wording,
        first,
        closing_usage=include_usage,
        continuous_usage=include_usage and bool(options and options.continuous_usage_stats),
    )
    return EventStream(events, on_end=source.close)


async def _collect(source: Source) -> list[Choice]:
    choices = [Choice(index) for index in range(source.choices)]
    texts: list[list[str]] = [[] for _ in choices]
    while deltas := await source.deltas():
        for delta in deltas:
            _raise_error(delta)
            choice = choices[delta.choice]
            texts[delta.choice].append(delta.text)
            choice.logprobs += delta.logprobs or []
            if delta.finish is not None:
                choice.finish, choice.stop = delta.finish, delta.stop
    for choice, parts in zip(choices, texts, strict=True):
        choice.text = "".join(parts)
    return choices


async def _first_deltas(source: Source) -> list[Delta]:
    """What came within FIRST_WORD_S, perhaps nothing. Raises when it begins with a refusal."""
    try:
        async with asyncio.timeout(FIRST_WORD_S):
            deltas = await source.deltas()
    except TimeoutError:
        return []
    _raise_error(deltas[0])
    return deltas


async def _events(
    source: Source,
    wording: Wording,
    first: list[Delta],
    *,
    closing_usage: bool,
    continuous_usage: bool,
) -> AsyncIterator[bytes]:
    """The frames of a stream. What fails after the status line has been sent becomes an event."""

    def usage() -> UsageBody | None:
        return source.usage() if continuous_usage else None

    try:
        opening = [chunk for index in range(source.choices) for chunk in wording.opening(index, usage())]
        if opening:
            yield b"".join(map(event, opening))
        deltas = first or await source.deltas()
        while deltas:
            frames: list[bytes] = []
            for delta in deltas:
                if delta.error is not None:
                    yield b"".join(frames)
                    _raise_error(delta)
                frames += map(event, wording.chunks(delta, usage()))
            if frames:
                yield b"".join(frames)
            deltas = await source.deltas()
        if closing_usage:
            yield event(wording.closing(source.usage()))
    except Exception as error:
        body = error_body(error)
        if body.type == "server_error":
            logger.exception("a stream ended with an error")
        yield event(ErrorAnswer(body))
    yield DONE


def _raise_error(delta: Delta) -> None:
    if delta.error is not None:
        raise revive(delta.error)
