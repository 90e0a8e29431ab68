"""POST /v1/completions: prompts as text or tokens, echo, and how a text completion is worded."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from msgspec import UNSET
from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from octavo.config import Resolved
from octavo.errors import InvalidRequest
from octavo.server.body import BodyReader
from octavo.server.deps import Deps
from octavo.server.fields import UNSUPPORTED
from octavo.server.generation import Generation, engine_requests, usage_body
from octavo.server.logprobs import CompletionLogprobWriter
from octavo.server.openai import Completion, CompletionChoice, CompletionLogprobs, CompletionRequest, UsageBody
from octavo.server.reply import Choice, Source, reply
from octavo.server.sampling import check_room, check_stream_options, sampling_params, stop_reason
from octavo.text.answer import Delta
from octavo.text.tokenizer import Tokenizer
from octavo.types import MAX_CHOICES, FinishReason, SamplingParams, TokenLogprob

DEFAULT_MAX_TOKENS = 16  # OpenAI's


class CompletionRoute:
    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._body = BodyReader(CompletionRequest, max_bytes=deps.max_body, unsupported=UNSUPPORTED)

    async def create(self, http: HTTPRequest) -> Response:
        deps = self._deps
        body, size = await self._body.read(http)
        deps.check_model(body.model)
        check_stream_options(body)
        if body.echo and body.logprobs is not None:
            raise InvalidRequest(
                "echo with logprobs needs the log-probabilities of the prompt, which this server does not compute",
                param="echo",
                code="unsupported",
            )
        resolved = deps.resolved()
        tokenizer = deps.text.tokenizer
        prompts = await deps.work.run(size, partial(encode_prompts, tokenizer, body.prompt, resolved))
        prompt_only = bool(body.echo) and body.max_tokens == 0
        params = self._params(body, max(map(len, prompts)), resolved, prompt_only)
        check_choices(len(prompts), params.n, resolved.queue)
        echo = [tokenizer.decode(prompt, skip_special=False) for prompt in prompts] if body.echo else []
        wording = CompletionWording(deps.model, params, tokenizer, echo)
        source: Source
        if prompt_only:
            source = PromptOnly(prompts, params.n)
        else:
            requests = engine_requests(wording.id, prompts, params, salt=body.cache_salt or "")
            source = Generation(deps.client, tokenizer, requests, deps.metrics, continues=True)
        return await reply(http, body, source, wording)

    def _params(
        self, body: CompletionRequest, prompt_tokens: int, resolved: Resolved, prompt_only: bool
    ) -> SamplingParams:
        """`prompt_tokens` is the length of the longest prompt. SamplingParams knows no answer of no tokens, so
        that of `prompt_only` says one."""
        max_tokens = 1 if prompt_only else body.max_tokens
        check_room(prompt_tokens, max_tokens, context_length=resolved.max_len, param="prompt")
        if max_tokens is None:
            max_tokens = min(DEFAULT_MAX_TOKENS, resolved.max_len - prompt_tokens)
        return sampling_params(body, vocab=resolved.vocab, max_tokens=max_tokens, logprobs=body.logprobs)


def encode_prompts(
    tokenizer: Tokenizer, prompt: str | Sequence[str | int | list[int]], resolved: Resolved
) -> list[list[int]]:
    """The tokens of each prompt: a string, token ids, or a list of either. InvalidRequest (param "prompt")."""
    prompts = [prompt] if isinstance(prompt, str) else prompt
    if not prompts:
        raise InvalidRequest("prompt is an empty list", param="prompt")
    ids = [item for item in prompts if isinstance(item, int)]
    id_lists = [item for item in prompts if isinstance(item, list)]
    texts = [item for item in prompts if isinstance(item, str)]
    if len(prompts) not in (len(ids), len(id_lists), len(texts)):
        raise InvalidRequest(
            "prompt must be a string, a list of strings, a list of token ids or a list of lists of token ids",
            param="prompt",
        )
    if max(len(id_lists), len(texts)) > resolved.queue:
        raise InvalidRequest(f"prompt holds {len(prompts)} prompts, the limit is {resolved.queue}", param="prompt")
    encoded = [ids] if ids else id_lists or [tokenizer.encode(text, add_special=True) for text in texts]
    for tokens in encoded:
        if not tokens:
            raise InvalidRequest("prompt must hold at least one token", param="prompt")
        if min(tokens) < 0 or max(tokens) >= resolved.vocab:
            raise InvalidRequest(f"prompt token ids must lie between 0 and {resolved.vocab - 1}", param="prompt")
    return encoded


def check_choices(prompts: int, n: int, queue: int) -> None:
    """InvalidRequest when a body asks for more answers than may wait: each costs memory before it begins."""
    most = max(queue, MAX_CHOICES)
    if prompts * n > most:
        raise InvalidRequest(f"{prompts} prompts with n={n} are {prompts * n} answers, the limit is {most}", param="n")


class PromptOnly:
    """Stands for a Generation where max_tokens=0 asks for the echo alone: nothing is computed."""

    def __init__(self, prompts: list[list[int]], n: int) -> None:
        self.choices = len(prompts) * n
        self._prompt_tokens = sum(map(len, prompts))
        self._deltas = [Delta(index, "", [], finish=FinishReason.LENGTH) for index in range(self.choices)]

    async def deltas(self) -> list[Delta]:
        deltas, self._deltas = self._deltas, []
        return deltas

    def usage(self) -> UsageBody:
        return usage_body(self._prompt_tokens, completion_tokens=0, cached_tokens=0)

    def close(self) -> None:
        """Nothing runs."""


class CompletionWording:
    """The bodies of one completion. `id` and `created` are equal in all of them; `echo` is the text of each prompt
    that its answers begin with, or empty."""

    def __init__(self, model: str, params: SamplingParams, tokenizer: Tokenizer, echo: list[str]) -> None:
        self.id = f"cmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._model = model
        self._params = params
        self._tokenizer = tokenizer
        self._echo = echo
        self._logprob_writers: defaultdict[int, CompletionLogprobWriter] = defaultdict(
            lambda: CompletionLogprobWriter(tokenizer)
        )

    def opening(self, index: int, usage: UsageBody | None) -> list[Completion]:
        return [self._chunk(CompletionChoice(index, self._echo_of(index)), usage)] if self._echo else []

    def chunks(self, delta: Delta, usage: UsageBody | None) -> list[Completion]:
        """The end comes in a chunk of its own: some clients read no text there."""
        index, chunks = delta.choice, []
        if delta.text or delta.logprobs:
            logprobs = self._logprobs(index, delta.logprobs)
            chunks.append(self._chunk(CompletionChoice(index, delta.text, logprobs), usage))
        if delta.finish is not None:
            reason = stop_reason(delta.stop, self._params)
            chunks.append(self._chunk(CompletionChoice(index, "", None, delta.finish.value, reason), usage))
        return chunks

    def closing(self, usage: UsageBody) -> Completion:
        return Completion(self.id, self._created, self._model, [], usage)

    def whole(self, choices: list[Choice], usage: UsageBody) -> Completion:
        bodies = [
            CompletionChoice(
                choice.index,
                self._echo_of(choice.index) + choice.text,
                self._logprobs(choice.index, choice.logprobs),
                choice.finish.value,
                stop_reason(choice.stop, self._params),
            )
            for choice in choices
        ]
        return Completion(self.id, self._created, self._model, bodies, usage)

    def _echo_of(self, index: int) -> str:
        return self._echo[index // self._params.n] if self._echo else ""

    def _chunk(self, choice: CompletionChoice, usage: UsageBody | None) -> Completion:
        return Completion(self.id, self._created, self._model, [choice], UNSET if usage is None else usage)

    def _logprobs(self, index: int, logprobs: list[TokenLogprob] | None) -> CompletionLogprobs | None:
        if self._params.logprobs is None:
            return None
        return self._logprob_writers[index].write(logprobs or [])
