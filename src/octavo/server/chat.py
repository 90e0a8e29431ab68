"""POST /v1/chat/completions: from messages to a prompt, and how a chat answer is worded."""

from __future__ import annotations

import time
import uuid
from functools import partial

from msgspec import UNSET
from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from octavo.errors import InvalidRequest
from octavo.server.body import BodyReader
from octavo.server.deps import Deps
from octavo.server.fields import UNSUPPORTED_IN_CHAT
from octavo.server.generation import Generation, engine_requests
from octavo.server.logprobs import chat_logprobs
from octavo.server.openai import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    ChatRequest,
    UsageBody,
)
from octavo.server.reply import Choice, reply
from octavo.server.sampling import check_room, check_stream_options, sampling_params, stop_reason
from octavo.text.answer import Delta
from octavo.text.load import ModelText
from octavo.text.tokenizer import Tokenizer
from octavo.types import MAX_TOP_LOGPROBS, SamplingParams, TokenLogprob

# What ChatTemplate.render takes under names of its own; the template refuses others that it reserves.
RENDER_PARAMETERS = frozenset({"self", "messages", "tools", "add_generation_prompt"})


class ChatRoute:
    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._body = BodyReader(ChatRequest, max_bytes=deps.max_body, unsupported=UNSUPPORTED_IN_CHAT)

    async def create(self, http: HTTPRequest) -> Response:
        deps = self._deps
        body, size = await self._body.read(http)
        deps.check_model(body.model)
        check_stream_options(body)
        resolved = deps.resolved()
        params = sampling_params(
            body,
            vocab=resolved.vocab,
            max_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
            logprobs=_logprobs(body),
        )
        prompt = await deps.work.run(size, partial(encode_chat, deps.text, body))
        check_room(len(prompt), params.max_tokens, context_length=resolved.max_len, param="messages")
        wording = ChatWording(deps.model, params, deps.text.tokenizer)
        requests = engine_requests(wording.id, [prompt], params, salt=body.cache_salt or "")
        generation = Generation(
            deps.client, deps.text.tokenizer, requests, deps.metrics, continues=bool(body.continue_final_message)
        )
        return await reply(http, body, generation, wording)


def encode_chat(text: ModelText, body: ChatRequest) -> list[int]:
    """The prompt's tokens. Raises InvalidRequest for messages that the template refuses."""
    continued = bool(body.continue_final_message)
    if continued and body.add_generation_prompt:
        raise InvalidRequest(
            "continue_final_message and add_generation_prompt exclude each other: the one ends the prompt inside the "
            "last message, the other begins a new one",
            param="continue_final_message",
        )
    variables = body.chat_template_kwargs or {}
    if taken := RENDER_PARAMETERS & variables.keys():
        raise InvalidRequest(
            f"chat_template_kwargs may not set {', '.join(sorted(taken))}", param="chat_template_kwargs"
        )
    prompt = text.template.render(
        body.messages,
        add_generation_prompt=not continued and body.add_generation_prompt is not False,
        **variables,
    )
    if continued:
        prompt = _cut_after_last_message(prompt, body)
    return text.tokenizer.encode(prompt, add_special=False)


def _cut_after_last_message(prompt: str, body: ChatRequest) -> str:
    """The prompt up to the end of the last message's content, which templates may have stripped."""
    content = body.messages[-1].get("content")
    if not isinstance(content, str):
        content = ""
    start = prompt.rfind(content.strip())
    if start < 0 or not content.strip():
        raise InvalidRequest(
            "continue_final_message needs a last message whose content is a text that the chat template shows as it is",
            param="continue_final_message",
        )
    shown = content.lstrip()
    if not prompt.startswith(shown, start):
        shown = content.strip()
    return prompt[: start + len(shown)]


def _logprobs(body: ChatRequest) -> int | None:
    """SamplingParams.logprobs: None without, else how many of the most likely tokens to tell."""
    top = body.top_logprobs
    if top is not None:
        if not body.logprobs:
            raise InvalidRequest("top_logprobs needs logprobs=true", param="top_logprobs")
        if not 0 <= top <= MAX_TOP_LOGPROBS:
            raise InvalidRequest(
                f"top_logprobs must be between 0 and {MAX_TOP_LOGPROBS}, got {top}", param="top_logprobs"
            )
    return (top or 0) if body.logprobs else None


class ChatWording:
    """The bodies of one chat answer. `id` and `created` are equal in all of them."""

    def __init__(self, model: str, params: SamplingParams, tokenizer: Tokenizer) -> None:
        self.id = f"chatcmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._model = model
        self._params = params
        self._tokenizer = tokenizer

    def opening(self, index: int, usage: UsageBody | None) -> list[ChatChunk]:
        return [self._chunk(ChatChunkChoice(index, ChatDelta("assistant", "")), usage)]

    def chunks(self, delta: Delta, usage: UsageBody | None) -> list[ChatChunk]:
        """The end comes in a chunk of its own: some clients read no content there."""
        chunks = []
        if delta.text or delta.logprobs:
            content = ChatDelta(content=delta.text)
            chunks.append(self._chunk(ChatChunkChoice(delta.choice, content, self._logprobs(delta.logprobs)), usage))
        if delta.finish is not None:
            reason = stop_reason(delta.stop, self._params)
            end = ChatChunkChoice(delta.choice, ChatDelta(), finish_reason=delta.finish.value, stop_reason=reason)
            chunks.append(self._chunk(end, usage))
        return chunks

    def closing(self, usage: UsageBody) -> ChatChunk:
        return ChatChunk(self.id, self._created, self._model, [], usage)

    def whole(self, choices: list[Choice], usage: UsageBody) -> ChatCompletion:
        bodies = [
            ChatChoice(
                choice.index,
                ChatMessage(choice.text),
                self._logprobs(choice.logprobs),
                choice.finish.value,
                stop_reason(choice.stop, self._params),
            )
            for choice in choices
        ]
        return ChatCompletion(self.id, self._created, self._model, bodies, usage)

    def _chunk(self, choice: ChatChunkChoice, usage: UsageBody | None) -> ChatChunk:
        return ChatChunk(self.id, self._created, self._model, [choice], UNSET if usage is None else usage)

    def _logprobs(self, logprobs: list[TokenLogprob] | None) -> ChatLogprobs | None:
        return None if self._params.logprobs is None else chat_logprobs(self._tokenizer, logprobs or [])
