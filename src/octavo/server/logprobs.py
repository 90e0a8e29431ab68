"""Log-probabilities in OpenAI's two formats, chat and completions. Owns how a token that is no whole character is
spelled in each.
"""

from __future__ import annotations

from collections.abc import Iterable

from octavo.server.openai import ChatLogprobs, ChatTokenLogprob, ChatTopLogprob, CompletionLogprobs
from octavo.text.tokenizer import Tokenizer
from octavo.types import TokenLogprob

FLOOR = -9999.0  # stands for minus infinity, which JSON cannot hold


def chat_logprobs(tokenizer: Tokenizer, logprobs: Iterable[TokenLogprob]) -> ChatLogprobs:
    """`bytes` is the truth; `token` shows U+FFFD where the bytes are no whole character."""
    content = []
    for entry in logprobs:
        data = tokenizer.token_bytes(entry.token)
        top = []
        for token, logprob in entry.top:
            top_data = tokenizer.token_bytes(token)
            top.append(ChatTopLogprob(top_data.decode(errors="replace"), max(logprob, FLOOR), list(top_data)))
        content.append(ChatTokenLogprob(data.decode(errors="replace"), max(entry.logprob, FLOOR), list(data), top))
    return ChatLogprobs(content)


class CompletionLogprobWriter:
    """The logprobs of one choice, chunk by chunk: `text_offset` counts characters from the start of its text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._offset = 0

    def write(self, logprobs: Iterable[TokenLogprob]) -> CompletionLogprobs:
        """The chosen token is always among the top ones, so there may be one more of them than was asked for."""
        body = CompletionLogprobs([], [], [], [])
        for entry in logprobs:
            chosen = self._spell(entry.token)
            body.tokens.append(chosen)
            body.token_logprobs.append(max(entry.logprob, FLOOR))
            top = {self._spell(token): max(logprob, FLOOR) for token, logprob in entry.top}
            top.setdefault(chosen, max(entry.logprob, FLOOR))
            body.top_logprobs.append(top)
            body.text_offset.append(self._offset)
            self._offset += len(self._tokenizer.token_bytes(entry.token).decode(errors="ignore"))
        return body

    def _spell(self, token: int) -> str:
        """The token's text, or `bytes:\\xNN...` for a part of a character, so that different tokens stay different."""
        data = self._tokenizer.token_bytes(token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
