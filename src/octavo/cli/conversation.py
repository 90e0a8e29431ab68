"""Conversation: the history of one chat and the request that continues it. No input, no output."""

from __future__ import annotations

from collections.abc import Generator

from octavo.llm import LLM
from octavo.types import SamplingParams


class Conversation:
    """`system` may be changed at any time; it holds from the next message on."""

    def __init__(self, llm: LLM, params: SamplingParams, system: str = "") -> None:
        self.system = system
        self.full = False  # the last answer ended because the context was full
        self._llm = llm
        self._params = params
        self._history: list[dict[str, str]] = []

    @property
    def context_length(self) -> int:
        return self._llm.resolved.max_len

    def reset(self) -> None:
        """Forget everything but the system message."""
        self._history.clear()
        self.full = False

    def ask(self, text: str) -> Generator[str, None, None]:
        """The answer, piece by piece. What was said is remembered, also of an answer that is stopped half-way;
        a message that is refused (InvalidRequest, ContextLengthExceeded) is not."""
        question = {"role": "user", "content": text}
        start = [{"role": "system", "content": self.system}] if self.system else []
        said: list[str] = []
        with self._llm.stream([*start, *self._history, question], self._params) as stream:
            try:
                for piece in stream:
                    said.append(piece)
                    if piece.usage is not None:
                        self.full = piece.usage.prompt_tokens + piece.usage.completion_tokens >= self.context_length
                    yield piece
            finally:
                self._history += [question, {"role": "assistant", "content": "".join(said)}]
