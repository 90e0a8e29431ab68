"""The vocabulary shared by every part: what a client asks, what the engine answers. Plain msgspec structs that
travel over the engine pipe unchanged. The engine knows tokens only; text lives in the front end.
"""

from __future__ import annotations

import enum
import math

import msgspec

from octavo.errors import InvalidRequest

MAX_TOP_LOGPROBS = 20
MAX_CHOICES = 128
MAX_STOP_STRINGS = 16
MAX_STOP_TOKEN_IDS = 1024
MAX_SALT_CHARS = 256
SEED_BITS = 63


class FinishReason(enum.StrEnum):
    """Why a choice ended. Exactly one final `Output` per choice carries one."""

    STOP = "stop"  # an end-of-sequence or stop token, or a stop string found by the front end
    LENGTH = "length"  # max_tokens or the context limit
    ABORT = "abort"  # the client asked for it or went away
    ERROR = "error"  # refused or given up; `Output.error` says why


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to choose tokens and when to end. Validated on construction: InvalidRequest names the field.

    `temperature == 0` is greedy. `top_k == 0` and `top_p == 1` and `min_p == 0` are off. `max_tokens=None`
    means until the context is full. `stop` (strings) is matched by the front end, `stop_token_ids` by the
    engine. `logprobs=k` reports the chosen token and the k most likely ones.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0  # > 1 discourages tokens of prompt and output (CTRL, arXiv 1909.05858)
    presence_penalty: float = 0.0  # subtracted once per token already in the output (OpenAI)
    frequency_penalty: float = 0.0  # subtracted per occurrence in the output (OpenAI)
    seed: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    logprobs: int | None = None

    def __post_init__(self) -> None:
        _check_whole("max_tokens", self.max_tokens, low=1, optional=True)
        _check_real("temperature", self.temperature, 0.0, 2.0)
        _check_whole("top_k", self.top_k, low=0)
        _check_real("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _check_real("min_p", self.min_p, 0.0, 1.0)
        _check_real("repetition_penalty", self.repetition_penalty, 0.0, 10.0, open_low=True)
        _check_real("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_real("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _check_whole("seed", self.seed, low=-(2**SEED_BITS), high=2**SEED_BITS - 1, optional=True)
        _check_whole("n", self.n, low=1, high=MAX_CHOICES)
        _check_whole("logprobs", self.logprobs, low=0, high=MAX_TOP_LOGPROBS, optional=True)
        if len(self.stop) > MAX_STOP_STRINGS:
            raise InvalidRequest(f"stop takes at most {MAX_STOP_STRINGS} strings, got {len(self.stop)}", param="stop")
        if any(not isinstance(s, str) or not s for s in self.stop):
            raise InvalidRequest("stop must hold non-empty strings", param="stop")
        if len(self.stop_token_ids) > MAX_STOP_TOKEN_IDS:
            raise InvalidRequest(
                f"stop_token_ids takes at most {MAX_STOP_TOKEN_IDS} ids, got {len(self.stop_token_ids)}",
                param="stop_token_ids",
            )
        if any(isinstance(t, bool) or not isinstance(t, int) or t < 0 for t in self.stop_token_ids):
            raise InvalidRequest("stop_token_ids must hold token ids (whole numbers >= 0)", param="stop_token_ids")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the engine is asked to do, in tokens. Immutable.

    `seed` is always set (the front end draws one when the client gave none), so that a request resubmitted
    after an engine restart continues exactly. Such a request carries the tokens already delivered in
    `generated`; they count against `max_tokens` and as output for penalties, and are not emitted again.
    `choice` is the index of the first of the `params.n` choices; choice i draws its noise from
    (seed, choice + i, position). `salt` separates prefix caches that must not share.
    """

    id: str
    prompt: list[int]
    params: SamplingParams
    seed: int
    generated: list[int] = []
    choice: int = 0
    salt: str = ""
    priority: int = 0  # lower runs first; equal priorities run in order of arrival


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """Natural-log probability of a chosen token under the distribution that the model gave (before penalties,
    temperature and filters), and the `logprobs` most likely tokens with theirs, best first."""

    token: int
    logprob: float
    top: list[tuple[int, float]]


class Usage(msgspec.Struct, frozen=True, array_like=True):
    """Token counts of one choice. `cached_tokens` of the prompt were reused from the prefix cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class ErrorInfo(msgspec.Struct, frozen=True, array_like=True):
    """An error that crosses the engine pipe: the name of its class in `octavo.errors`, and its words."""

    kind: str
    message: str
    param: str | None = None
    code: str | None = None


class Output(msgspec.Struct, array_like=True):
    """New tokens of one choice of one request. Any number with `finish` None, then exactly one with it set.

    The end-of-sequence or stop token that ended a choice is counted in usage but not in `tokens`; `stop_token`
    names it. `logprobs` aligns with `tokens` when the request asked for them. `usage` comes with a choice's first
    and final Output.
    """

    request_id: str
    choice: int
    tokens: list[int]
    logprobs: list[TokenLogprob] | None = None
    finish: FinishReason | None = None
    stop_token: int | None = None
    usage: Usage | None = None
    error: ErrorInfo | None = None


def _check_real(name: str, value: float, low: float, high: float, *, open_low: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InvalidRequest(f"{name} must be a finite number, got {value!r}", param=name)
    if not (low < value if open_low else low <= value) or value > high:
        bracket = "(" if open_low else "["
        raise InvalidRequest(f"{name} must lie in {bracket}{low:g}, {high:g}], got {value!r}", param=name)


def _check_whole(name: str, value: int | None, *, low: int, high: int | None = None, optional: bool = False) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{name} must be a whole number, got {value!r}", param=name)
    if value < low or (high is not None and value > high):
        limit = f"at least {low}" if high is None else f"between {low} and {high}"
        raise InvalidRequest(f"{name} must be {limit}, got {value}", param=name)
