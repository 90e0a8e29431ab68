"""The prompts of a job, drawn from its seed, and the measure of decoding: every contender reads the same tokens and is
counted alike. Pure standard library.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

# Tokens that a sequence may write beyond those that are counted: the first to be read writes on while others are read.
SLACK_TOKENS = 64


def draw_prompts(job: dict[str, Any]) -> list[list[int]]:
    """`users` prompts of `prompt_tokens` ids below `vocab`."""
    rng = random.Random(job["seed"])
    return [[rng.randrange(job["vocab"]) for _ in range(job["prompt_tokens"])] for _ in range(job["users"])]


def draw_chats(job: dict[str, Any]) -> list[list[tuple[list[int], int]]]:
    """For every user the prompts and numbers of output tokens of its chats: job["lengths"] with ids."""
    rng = random.Random(job["seed"])
    return [
        [([rng.randrange(job["vocab"]) for _ in range(prompt)], output) for prompt, output in own]
        for own in job["lengths"]
    ]


class DecodeWindow:
    """Prefill lasts until every sequence has its first token; then `steps` steps are counted, in all of which every
    sequence writes. Times in seconds, from any clock.
    """

    def __init__(self, prompt_tokens: int, steps: int, began: float) -> None:
        self._prompt_tokens = prompt_tokens
        self._steps_left = steps
        self._began = began
        self._prefilled: float | None = None
        self._at_prefill = 0
        self._written = 0
        self._ended = began

    @property
    def open(self) -> bool:
        return self._prefilled is None or self._steps_left > 0

    def note(self, written: Iterable[int], now: float) -> None:
        """How many tokens each sequence has written after one more step."""
        counts = list(written)
        if self._prefilled is None:
            if min(counts) > 0:
                self._prefilled, self._at_prefill = now, sum(counts)
                self._written, self._ended = self._at_prefill, now
        elif sum(counts) > self._written:
            self._written, self._ended = sum(counts), now
            self._steps_left -= 1

    def figures(self) -> dict[str, float | int]:
        assert self._prefilled is not None, "not every sequence has been read"
        return {
            "prefill_tokens": self._prompt_tokens,
            "prefill_s": self._prefilled - self._began,
            "decode_tokens": self._written - self._at_prefill,
            "decode_s": self._ended - self._prefilled,
        }
