"""Answer: one choice's tokens become text. Joins the detokenizer and the stop matcher; used by the server and by
the offline API alike. Knows nothing of wire formats.
"""

from __future__ import annotations

import msgspec

from octavo.text.detokenizer import Detokenizer
from octavo.text.stop import StopMatcher, StopStrings
from octavo.text.tokenizer import Tokenizer
from octavo.types import ErrorInfo, FinishReason, Output, SamplingParams, TokenLogprob, Usage


class Delta(msgspec.Struct):
    """What one Output added to a choice: text that is safe to show, and the end when it has come."""

    choice: int
    text: str
    tokens: list[int]
    logprobs: list[TokenLogprob] | None = None
    finish: FinishReason | None = None
    stop: str | int | None = None  # the stop string or token that ended it
    usage: Usage | None = None
    error: ErrorInfo | None = None


class Answer:
    """`ended` turns true with the final Delta; when a stop string ended it, the engine still has to be told.

    `stops` are those of `params`, made once for all choices. With `continues` the answer carries on the prompt's own
    text (a completion), so a leading space is kept.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        params: SamplingParams,
        stops: StopStrings,
        prompt_tokens: int,
        *,
        continues: bool = False,
    ) -> None:
        self.ended = False
        self._detokenizer = Detokenizer(tokenizer, continues=continues)
        self._stop = StopMatcher(stops, include=params.include_stop_str_in_output)
        self._prompt_tokens = prompt_tokens
        self._tokens = 0
        self._cached_tokens = 0

    def push(self, output: Output) -> Delta:
        """Fold one Output in. Must not be called after the end."""
        assert not self.ended, "an answer is continued after its end"
        self._tokens += len(output.tokens)
        if output.usage is not None:
            self._cached_tokens = output.usage.cached_tokens
        text = self._detokenizer.push(output.tokens)
        if output.finish is not None:
            text += self._detokenizer.finish()
        text, stop = self._stop.push(text)
        delta = Delta(output.choice, text, output.tokens, output.logprobs)
        if stop is not None:
            delta.finish, delta.stop = FinishReason.STOP, stop
            delta.usage = Usage(self._prompt_tokens, self._tokens, self._cached_tokens)
        elif output.finish is not None:
            delta.text += self._stop.finish()
            delta.finish, delta.stop = output.finish, output.stop_token
            delta.usage, delta.error = output.usage, output.error
        self.ended = delta.finish is not None
        return delta
