"""The OpenAI wire format as structs: what clients send and what they get. Owns names and types only; which values
are allowed is `sampling.py` and `octavo.types`, which fields are refused is `fields.py`.

Every optional request field may be null, as the official client sends it. Response fields that clients expect to be
absent rather than null are UNSET by default.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

# --- requests -----------------------------------------------------------------------------------------------


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationRequest(msgspec.Struct, kw_only=True):
    """What both routes share. Fields beyond OpenAI's own are those of vLLM."""

    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    cache_salt: str | None = None


class ChatRequest(GenerationRequest, kw_only=True):
    """Messages stay plain objects: their form is the chat template's affair (`text/messages.py`)."""

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None


class CompletionRequest(GenerationRequest, kw_only=True):
    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None
    echo: bool | None = None


# --- what answers share -------------------------------------------------------------------------------------


class PromptTokensDetails(msgspec.Struct):
    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct):
    reasoning_tokens: int = 0


class UsageBody(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class ErrorBody(msgspec.Struct):
    """`n_prompt_tokens` and `n_ctx` come with a prompt that is too long."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None
    n_prompt_tokens: int | UnsetType = UNSET
    n_ctx: int | UnsetType = UNSET


class ErrorAnswer(msgspec.Struct):
    error: ErrorBody


# --- chat ---------------------------------------------------------------------------------------------------


class ChatTopLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[ChatTopLogprob]


class ChatLogprobs(msgspec.Struct):
    content: list[ChatTokenLogprob]
    refusal: None = None


class ChatMessage(msgspec.Struct):
    content: str
    role: str = "assistant"
    refusal: None = None


class ChatChoice(msgspec.Struct):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str
    stop_reason: str | int | UnsetType = UNSET


class ChatCompletion(msgspec.Struct):
    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageBody
    object: str = "chat.completion"


class ChatDelta(msgspec.Struct):
    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType = UNSET


class ChatChunk(msgspec.Struct):
    id: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: UsageBody | UnsetType = UNSET
    object: str = "chat.completion.chunk"


# --- completions --------------------------------------------------------------------------------------------


class CompletionLogprobs(msgspec.Struct):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType = UNSET


class Completion(msgspec.Struct):
    """A whole completion, or one chunk of a streamed one: the format is the same."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: UsageBody | UnsetType = UNSET
    object: str = "text_completion"


# --- models -------------------------------------------------------------------------------------------------


class ModelPermission(msgspec.Struct):
    id: str
    created: int
    object: str = "model_permission"
    allow_create_engine: bool = False
    allow_sampling: bool = True
    allow_logprobs: bool = True
    allow_search_indices: bool = False
    allow_view: bool = True
    allow_fine_tuning: bool = False
    organization: str = "*"
    group: None = None
    is_blocking: bool = False


class ModelMeta(msgspec.Struct):
    """Sizes of the model, under llama.cpp's names. `size` is bytes of weights."""

    n_ctx_train: int | None
    n_vocab: int | None
    size: int | None


class ModelCard(msgspec.Struct):
    id: str
    created: int
    root: str
    max_model_len: int | None
    permission: list[ModelPermission]
    meta: ModelMeta
    object: str = "model"
    owned_by: str = "octavo"
    parent: None = None


class ModelEntry(msgspec.Struct):
    """A model as llama.cpp lists it beside OpenAI's list."""

    name: str
    model: str
    type: str = "model"
    capabilities: tuple[str, ...] = ("completion",)


class ModelList(msgspec.Struct):
    data: list[ModelCard]
    models: list[ModelEntry]
    object: str = "list"
