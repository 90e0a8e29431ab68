"""What the offline API returns: Generation and Choice for finished answers, TextDelta for streams. Data and collection
only; running requests is `llm.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.text.answer import Delta
from octavo.types import FinishReason, TokenLogprob, Usage

_SHOWN = 60  # characters of text in a repr


@dataclass(frozen=True, slots=True, repr=False)
class Choice:
    """One answer. `stop` is the stop string or token id that ended it; `logprobs` aligns with `tokens`."""

    index: int
    text: str
    tokens: list[int]
    finish: FinishReason
    stop: str | int | None
    logprobs: list[TokenLogprob] | None

    def __repr__(self) -> str:
        return f"Choice({_shorten(self.text)}, tokens={len(self.tokens)}, finish={self.finish.value!r})"


@dataclass(frozen=True, slots=True, repr=False)
class Generation:
    """The answers to one prompt, `params.n` of them. `usage` counts the prompt once and the tokens of all choices."""

    prompt_tokens: list[int]
    choices: list[Choice]
    usage: Usage

    @property
    def text(self) -> str:
        """The first choice's text."""
        return self.choices[0].text

    @property
    def tokens(self) -> list[int]:
        """The first choice's tokens."""
        return self.choices[0].tokens

    def __repr__(self) -> str:
        more = f", choices={len(self.choices)}" if len(self.choices) > 1 else ""
        return f"Generation({_shorten(self.text)}{more}, prompt_tokens={len(self.prompt_tokens)})"


class TextDelta(str):
    """A piece of an answer as it streams: a string that also knows its tokens.

    It may be empty, while a character or a possible stop string is not complete. `finish` is set on a choice's
    last delta, and `stop` and `usage` with it.
    """

    choice: int
    tokens: list[int]
    logprobs: list[TokenLogprob] | None
    finish: FinishReason | None
    stop: str | int | None
    usage: Usage | None

    @classmethod
    def of(cls, delta: Delta) -> TextDelta:
        text = cls(delta.text)
        text.choice, text.tokens, text.logprobs = delta.choice, delta.tokens, delta.logprobs
        text.finish, text.stop, text.usage = delta.finish, delta.stop, delta.usage
        return text


class Collector:
    """Puts the deltas of one choice together."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._texts: list[str] = []
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._last: Delta | None = None
        self.usage = Usage(0, 0, 0)

    def add(self, delta: Delta) -> None:
        self._texts.append(delta.text)
        self._tokens += delta.tokens
        self._logprobs += delta.logprobs or ()
        if delta.finish is not None:
            self._last = delta
            self.usage = delta.usage or self.usage

    def choice(self, *, with_logprobs: bool) -> Choice:
        """The finished answer; must not be called before its last delta."""
        last = self._last
        assert last is not None, "an answer is taken before its end"
        assert last.finish is not None, "the last delta has no finish reason"
        logprobs = self._logprobs if with_logprobs else None
        return Choice(self._index, "".join(self._texts), self._tokens, last.finish, last.stop, logprobs)


def generation(prompt_tokens: list[int], collectors: Sequence[Collector], *, with_logprobs: bool) -> Generation:
    """The Generation of a prompt whose choices have all ended."""
    usages = [collector.usage for collector in collectors]
    completion = sum(usage.completion_tokens for usage in usages)
    usage = Usage(len(prompt_tokens), completion, max(usage.cached_tokens for usage in usages))
    return Generation(prompt_tokens, [c.choice(with_logprobs=with_logprobs) for c in collectors], usage)


def _shorten(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
