"""What is compared: the rows of the comparison as data. Each row is one piece of work, the ways (entries) in which each
contender may do it, and the ratios that Octavo must reach and aims at.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from octavo.bench.chats import OUTPUT_LENGTHS, PROMPT_LENGTHS

OWN = "octavo"
LLAMA_CPP = "llama.cpp"
LLAMA_SERVER = "llama-server"
OPENVINO = "openvino"
TRANSFORMERS = "transformers"
PEERS = (LLAMA_CPP, LLAMA_SERVER, OPENVINO, TRANSFORMERS)

AS_GIVEN = "as given"  # the model's own file, in the format it has
BEST = "best"  # the peer with the highest median in this run
SWEEP_USERS = (1, 2, 4, 8, 16, 23, 32, 64)


class Metric(enum.StrEnum):
    """Which tokens are counted over which seconds of a measurement's figures."""

    PREFILL = "prefill"  # prompt tokens until every sequence has its first token
    DECODE = "decode"  # tokens from then on
    OUTPUT = "output"  # tokens written over the whole time of a chat load

    def rate(self, figures: Mapping[str, float]) -> float:
        """Tokens per second."""
        tokens, seconds = {
            Metric.PREFILL: ("prefill_tokens", "prefill_s"),
            Metric.DECODE: ("decode_tokens", "decode_s"),
            Metric.OUTPUT: ("output_tokens", "wall_s"),
        }[self]
        return figures[tokens] / figures[seconds]


@dataclass(frozen=True, slots=True)
class Entry:
    """One way of doing a row's work: the file's format and the contender's settings. A slow one runs in the first
    round only."""

    format: str = AS_GIVEN
    settings: Mapping[str, Any] = field(default_factory=dict)
    slow: bool = False

    @property
    def label(self) -> str:
        return ", ".join([self.format, *(f"{name} {_word(value)}" for name, value in self.settings.items())])


@dataclass(frozen=True, slots=True)
class Goal:
    """The ratio of Octavo's tokens per second to a peer's."""

    peer: str
    must: float
    aim: float


@dataclass(frozen=True, slots=True)
class Generate:
    """`users` prompts of equal length at once, in process. `keep_prompts`: a contender may keep the prompts in its
    cache from one round to the next, where only decoding is measured."""

    users: int
    prompt_tokens: int
    output_tokens: int
    keep_prompts: bool = False

    def scaled(self, quick: bool) -> Generate:
        if not quick:
            return self
        return replace(
            self,
            users=min(self.users, 4),
            prompt_tokens=min(self.prompt_tokens, 64),
            output_tokens=min(self.output_tokens, 8),
        )


@dataclass(frozen=True, slots=True)
class Chats:
    """A closed loop of users who chat, with the lengths of `bench serve`."""

    users: int
    per_user: int

    def scaled(self, quick: bool) -> Chats:
        return Chats(min(self.users, 4), 1) if quick else self


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    title: str
    work: Generate | Chats
    metric: Metric
    own: tuple[Entry, ...]
    peers: Mapping[str, tuple[Entry, ...]]
    goals: tuple[Goal, ...] = ()

    @property
    def context_tokens(self) -> int:
        """The context that the longest sequence may need."""
        if isinstance(self.work, Generate):
            return self.work.prompt_tokens + self.work.output_tokens
        return PROMPT_LENGTHS.high + OUTPUT_LENGTHS.high


def _word(value: object) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _llama(formats: tuple[str, ...], kinds: tuple[tuple[bool, str], ...]) -> tuple[Entry, ...]:
    return tuple(Entry(format, {"flash": flash, "kv": kv}) for format in formats for flash, kv in kinds)


_FLASH = ((True, "f16"),)
_FLASH_KV = ((True, "f16"), (True, "q8_0"))
_ALL_KV = ((True, "f16"), (True, "q8_0"), (False, "f16"))
_OPENVINO = (Entry(settings={"kv": "f16"}), Entry(settings={"kv": "u8"}))
_STEPS = (Entry(settings={"chunk": 512}), Entry(settings={"chunk": 512, "kv": "int8"}))
_LONG = (Entry(settings={"chunk": 2048}), Entry(settings={"chunk": 2048, "kv": "int8"}))
_SERVED = (Entry(), Entry(settings={"kv": "int8"}))


def _batched(users: int, must: float, aim: float) -> Row:
    peers = {LLAMA_CPP: _llama((AS_GIVEN, "Q4_0", "BF16"), _ALL_KV), OPENVINO: _OPENVINO}
    title = f"decode at {users} users, in process"
    return Row(
        f"decode-{users}", title, Generate(users, 128, 64), Metric.DECODE, _STEPS, peers, (Goal(BEST, must, aim),)
    )


def _chats(users: int, per_user: int, goals: tuple[Goal, ...]) -> Row:
    peers = {
        OPENVINO: _OPENVINO,
        LLAMA_SERVER: (Entry("Q4_0"), Entry("BF16")),
        TRANSFORMERS: (Entry(slow=True),),
    }
    title = f"chat load of {users} users; Octavo over HTTP"
    return Row(f"chat-{users}", title, Chats(users, per_user), Metric.OUTPUT, _SERVED, peers, goals)


def _long(users: int, ways: tuple[Entry, ...]) -> Row:
    peers = {LLAMA_CPP: ways}
    title = f"decode with 8k context, {users} sequence{'s' if users > 1 else ''}"
    work = Generate(users, 8000, 64, keep_prompts=True)
    return Row(f"long-{users}", title, work, Metric.DECODE, _LONG, peers, (Goal(LLAMA_CPP, 1.3, 1.7),))


def _single(name: str, title: str, peers: Mapping[str, tuple[Entry, ...]], goal: Goal, own: Entry) -> Row:
    return Row(name, title, Generate(1, 32, 128), Metric.DECODE, (own,), peers, (goal,))


ROWS = (
    _single(
        "single",
        "single-stream decode, the same file",
        {LLAMA_CPP: _llama((AS_GIVEN,), _ALL_KV)},
        Goal(LLAMA_CPP, 2.0, 2.4),
        _STEPS[0],
    ),
    _single(
        "single-any",
        "single-stream decode, any format",
        {LLAMA_CPP: _llama((AS_GIVEN, "Q4_0", "Q8_0", "BF16"), _FLASH), OPENVINO: _OPENVINO},
        Goal(BEST, 1.25, 1.5),
        _STEPS[0],
    ),
    _batched(23, 2.2, 2.8),
    _batched(64, 2.3, 2.9),
    Row(
        "prefill",
        "prefill of 512 tokens",
        Generate(1, 512, 2),
        Metric.PREFILL,
        _STEPS,
        {
            OPENVINO: _OPENVINO,
            LLAMA_CPP: _llama((AS_GIVEN, "Q4_0", "BF16"), ((True, "f16"), (False, "f16"))),
            TRANSFORMERS: (Entry(),),
        },
        (Goal(OPENVINO, 1.1, 1.35),),
    ),
    _chats(23, 3, (Goal(OPENVINO, 1.6, 2.1), Goal(LLAMA_SERVER, 3.0, 4.0), Goal(TRANSFORMERS, 10.0, 14.0))),
    _chats(64, 2, (Goal(OPENVINO, 1.8, 2.4),)),
    _long(1, _llama((AS_GIVEN, "Q4_0", "BF16"), _FLASH_KV)),
    _long(8, _llama((AS_GIVEN,), _FLASH)),  # the fastest way with one: each takes minutes for 64,000 tokens of prompts
    Row(
        "bf16-prefill",
        "bf16 checkpoint: prefill of 512 tokens",
        Generate(1, 512, 2),
        Metric.PREFILL,
        (Entry("BF16", {"chunk": 512}),),
        {LLAMA_CPP: _llama(("BF16",), ((True, "f16"), (False, "f16"))), OPENVINO: (Entry("BF16", {"kv": "f16"}),)},
        (Goal(BEST, 1.0, 1.15),),
    ),
    _single(
        "bf16-single",
        "bf16 checkpoint: single-stream decode",
        {LLAMA_CPP: _llama(("BF16",), _FLASH)},
        Goal(LLAMA_CPP, 1.1, 1.25),
        Entry("BF16", {"chunk": 512}),
    ),
)

SWEEP = tuple(
    Row(
        f"users-{users}",
        f"decode at {users} users",
        Generate(users, 128, 64),
        Metric.DECODE,
        _STEPS,
        {LLAMA_CPP: _llama(("Q4_0", "BF16"), _FLASH), OPENVINO: _OPENVINO},
    )
    for users in SWEEP_USERS
)
