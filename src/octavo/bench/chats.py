"""The chats of a load test: how long they are and what they say. Seeded, so that two runs ask the same. Knows nothing
of HTTP.

Lengths are lognormal, as those of real chats are; `mean` is the mean of the distribution before clipping.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

# Common words that are one token, with the space before them, in nearly every byte-pair vocabulary.
_TEXT = """
time year people way day man thing woman life child world school state family student group country problem hand
part place case week company system program question work government number night point home water room mother area
money story fact month lot right study book eye job word business issue side kind head house service friend father
power hour game line end member law car city community name president team minute idea body information back parent
face others level office door health person art war history party result change morning reason research girl guy
moment air teacher force education foot boy age policy music process sense nation plan college interest death
experience effect use class control field development role effort rate heart drug show leader light voice wife
police mind price report decision son view relationship town road arm difference value building action season
society tax director position player record paper space ground form event official matter center couple site project
activity star table need court oil situation cost industry figure street image phone data picture practice piece
land product doctor wall patient worker news test movie north love support technology
"""
WORDS = tuple(_TEXT.split())


@dataclass(frozen=True, slots=True)
class Lengths:
    """A clipped lognormal distribution of token counts: mu = ln(mean) - sigma^2 / 2."""

    mean: float
    sigma: float
    low: int
    high: int

    def draw(self, rng: random.Random) -> int:
        tokens = rng.lognormvariate(math.log(self.mean) - self.sigma**2 / 2, self.sigma)
        return min(self.high, max(self.low, round(tokens)))


PROMPT_LENGTHS = Lengths(mean=160, sigma=0.9, low=16, high=1024)
OUTPUT_LENGTHS = Lengths(mean=128, sigma=0.8, low=8, high=512)


@dataclass(frozen=True, slots=True)
class PromptScale:
    """How many tokens a message of random words becomes: `fixed` for the chat template, `per_word` for each word."""

    fixed: float
    per_word: float

    def words_for(self, tokens: int) -> int:
        """The number of words whose prompt is nearest to `tokens`; at least one."""
        return max(1, round((tokens - self.fixed) / self.per_word))


@dataclass(frozen=True, slots=True)
class Chat:
    """One request: what is said, and the number of tokens that prompt (as intended) and answer have."""

    text: str
    prompt_tokens: int
    output_tokens: int


def requests_per_user(users: int) -> int:
    """8 requests of a lone user, 4 of each of 8, 3 of 23, 2 of 64: 8 / cube root of the users, at least 2."""
    return max(2, round(8 / users ** (1 / 3)))


def random_words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))


def draw_chats(
    users: int, per_user: int, *, seed: int, scale: PromptScale, context_length: int | None = None
) -> list[list[Chat]]:
    """The chats of every user. No two prompts begin alike beyond the chat template.

    Where the server states its context length, longer chats are cut to it: the prompt to half of it, the answer
    to the rest.
    """
    rng = random.Random(seed)
    return [[_draw_chat(rng, scale, context_length) for _ in range(per_user)] for _ in range(users)]


def _draw_chat(rng: random.Random, scale: PromptScale, context_length: int | None) -> Chat:
    prompt, output = PROMPT_LENGTHS.draw(rng), OUTPUT_LENGTHS.draw(rng)
    if context_length is not None:
        prompt = min(prompt, context_length // 2)
        # The prompt's true length may differ by a few tokens from the one intended.
        output = max(1, min(output, context_length - prompt - context_length // 16))
    return Chat(random_words(rng, scale.words_for(prompt)), prompt, output)
