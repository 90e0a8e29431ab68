"""Closed-loop load: every user asks its next chat when the last one is answered. Owns finding out what the server is
like and driving it; what comes out is counted in `report.py`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from octavo.bench.chats import Chat, PromptScale, random_words
from octavo.bench.client import Client, ServerRefused
from octavo.bench.exchange import Exchange
from octavo.bench.user import User
from octavo.errors import BenchError

WARM_UP = "Hello"
PROBE_WORDS = (4, 104)
# Beyond what OpenAI defines; servers that know it then answer with exactly max_tokens tokens.
IGNORE_EOS = {"ignore_eos": True}


@dataclass(frozen=True, slots=True)
class Target:
    """A server to load. `extra` are body fields it takes to make answers as long as drawn."""

    base_url: str
    model: str
    context_length: int | None
    scale: PromptScale
    extra: dict[str, Any]


def inspect_target(base_url: str, model: str | None = None, *, seed: int = 0) -> Target:
    """Ask a server what it serves, and measure with two small chats how words become prompt tokens.

    The probes also warm the server up. BenchError when it does not answer as an OpenAI server does.
    """
    client = Client(base_url)
    try:
        listed = msgspec.json.decode(client.get("/v1/models"))["data"]
        card = next((card for card in listed if model in (None, card["id"])), listed[0])
        name = model or card["id"]
        extra = _accepted_extra(client, name)
        rng = random.Random(seed)
        counts = _probe_words(card.get("max_model_len"))
        few, many = (_probe(client, name, random_words(rng, words), extra) for words in counts)
    except (OSError, ServerRefused, LookupError, msgspec.DecodeError) as error:
        raise BenchError(f"{base_url} does not answer as an OpenAI server: {error}") from error
    finally:
        client.close()
    per_word = max((many - few) / (counts[1] - counts[0]), 0.1)
    scale = PromptScale(fixed=few - per_word * counts[0], per_word=per_word)
    return Target(base_url, name, card.get("max_model_len"), scale, extra)


def run_load(
    target: Target, chats: list[list[Chat]], on_exchange: Callable[[Exchange], None]
) -> tuple[list[Exchange], float]:
    """Every list of chats is one user's. Returns the measured chats and the seconds from first start to last end.

    `on_exchange` is called after each chat, in the caller's thread.
    """
    return asyncio.run(_run_load(target, chats, on_exchange))


async def _run_load(
    target: Target, chats: list[list[Chat]], on_exchange: Callable[[Exchange], None]
) -> tuple[list[Exchange], float]:
    exchanges: list[Exchange] = []

    async def use(own: list[Chat]) -> None:
        user = User(target.base_url)
        try:
            for chat in own:
                exchange = await user.chat(_body(target.model, chat.text, chat.output_tokens, target.extra))
                exchanges.append(exchange)
                on_exchange(exchange)
        finally:
            user.close()

    began = time.perf_counter()
    async with asyncio.TaskGroup() as users:
        for own in chats:
            users.create_task(use(own))
    return exchanges, time.perf_counter() - began


def _body(model: str, text: str, max_tokens: int, extra: dict[str, Any]) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": max_tokens, **extra}


def _accepted_extra(client: Client, model: str) -> dict[str, Any]:
    """IGNORE_EOS, or nothing for a server that refuses fields it does not know."""
    try:
        client.post("/v1/chat/completions", _body(model, WARM_UP, 1, IGNORE_EOS))
    except ServerRefused as error:
        if error.status not in (400, 422):
            raise
        return {}
    return IGNORE_EOS


def _probe_words(context_length: int | None) -> tuple[int, int]:
    """The sizes of the two probes; smaller for a model whose context holds only a few words."""
    few, many = PROBE_WORDS
    return few, many if context_length is None else min(many, few + max(1, context_length // 16))


def _probe(client: Client, model: str, text: str, extra: dict[str, Any]) -> int:
    tokens: int = client.post("/v1/chat/completions", _body(model, text, 1, extra))["usage"]["prompt_tokens"]
    return tokens
