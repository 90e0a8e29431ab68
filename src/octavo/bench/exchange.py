"""Exchange: what is measured of one streamed chat, and how the events of an OpenAI stream are folded into it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

ERROR_CHARACTERS = 300


@dataclass(slots=True)
class Exchange:
    """One measured chat. Times in seconds on `time.perf_counter`; `gaps` lie between events that carried text.

    Token counts are the server's own usage, or else the number of events with text.
    """

    started: float
    first: float | None = None
    ended: float = 0.0
    gaps: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    output_tokens: int = 0
    error: str | None = None

    def note(self, data: bytes, now: float) -> None:
        """Fold in an event's data that came at `now`. msgspec.DecodeError where it is no event of a chat."""
        event = _decoder.decode(data)
        if event.error:
            self.error = str(event.error)[:ERROR_CHARACTERS]
        if event.usage is not None:
            self.prompt_tokens = event.usage.prompt_tokens
            self.output_tokens = event.usage.completion_tokens
        if not event.choices or event.choices[0].delta is None or not event.choices[0].delta.content:
            return
        if self.first is None:
            self.first = now
        else:
            self.gaps.append(now - self.ended)
        self.ended = now  # until the chat ends: the time of the last text
        if event.usage is None:
            self.output_tokens += 1

    def end(self, now: float) -> None:
        """The answer is over at `now`; one without visible text has its first moment there."""
        self.ended = now
        if self.error is None and self.first is None:
            self.first = now


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int


class _Event(msgspec.Struct):
    """What is looked at of a `chat.completion.chunk`."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Event)
