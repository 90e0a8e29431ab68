"""From a request's wire fields to SamplingParams: defaults, aliases, and the limits of the model served. Ranges are
checked by SamplingParams itself.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from octavo.errors import ContextLengthExceeded, InvalidRequest
from octavo.server.openai import GenerationRequest
from octavo.types import SamplingParams

PLAIN_FIELDS = (
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "n",
    "include_stop_str_in_output",
    "ignore_eos",
)


def sampling_params(
    body: GenerationRequest, *, vocab: int, max_tokens: int | None, logprobs: int | None
) -> SamplingParams:
    """Raises InvalidRequest naming the field. A null or absent field means SamplingParams' own default.

    `vocab` is the number of token ids of the model, which bounds top_k and stop_token_ids.
    """
    given: dict[str, Any] = {name: value for name in PLAIN_FIELDS if (value := getattr(body, name)) is not None}
    if body.top_k is not None:
        given["top_k"] = 0 if body.top_k == -1 else min(body.top_k, vocab)  # -1 is "off" in vLLM's dialect
    if body.stop is not None:
        given["stop"] = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop)
    if body.stop_token_ids:
        if max(body.stop_token_ids) >= vocab:
            raise InvalidRequest(f"stop_token_ids must lie between 0 and {vocab - 1}", param="stop_token_ids")
        given["stop_token_ids"] = tuple(body.stop_token_ids)
    return SamplingParams(max_tokens=max_tokens, logprobs=logprobs, **given)


def stop_reason(stop: str | int | None, params: SamplingParams) -> str | int | UnsetType:
    """What the client asked to stop at, if that ended the answer: vLLM's field beside OpenAI's finish_reason."""
    if isinstance(stop, str) or stop in params.stop_token_ids:
        return stop
    return UNSET


def check_stream_options(body: GenerationRequest) -> None:
    """InvalidRequest when stream_options come without a stream."""
    if body.stream_options is not None and not body.stream:
        raise InvalidRequest("stream_options may only be given with stream=true", param="stream_options")


def check_room(prompt_tokens: int, max_tokens: int | None, *, context_length: int, param: str) -> None:
    """ContextLengthExceeded when prompt and output cannot fit `context_length` tokens; `param` names the prompt.

    The engine would refuse the same; this spares it, and the queue, the request.
    """
    if prompt_tokens >= context_length:
        raise ContextLengthExceeded(prompt_tokens=prompt_tokens, context_length=context_length, param=param)
    if max_tokens is not None and prompt_tokens + max_tokens > context_length:
        raise ContextLengthExceeded(
            prompt_tokens=prompt_tokens, context_length=context_length, max_tokens=max_tokens, param="max_tokens"
        )
