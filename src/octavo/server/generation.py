"""Generation: all choices of one HTTP request, from submission to the last token. Owns joining the streams of its
prompts, turning tokens into text, the token counts, and telling the engine what is no longer wanted.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable

from octavo.errors import EngineUnavailable, InvalidRequest
from octavo.server.metrics import Metrics
from octavo.server.openai import CompletionTokensDetails, PromptTokensDetails, UsageBody
from octavo.service.client import EngineClient
from octavo.service.error_info import describe
from octavo.service.stream import Stream
from octavo.text.answer import Answer, Delta
from octavo.text.stop import StopStrings
from octavo.text.tokenizer import Tokenizer
from octavo.types import MAX_SALT_CHARS, SEED_BITS, FinishReason, Output, Request, SamplingParams


class Generation:
    """One or more requests (one for each prompt) with equal `params`. Choice i of prompt p has the index i + p * n.

    `continues` says that answers carry on the prompt's own text. Submits on construction and raises what
    `EngineClient.submit` raises, and InvalidRequest for stop strings. Whoever constructs one must close() it.
    """

    def __init__(
        self,
        client: EngineClient,
        tokenizer: Tokenizer,
        requests: list[Request],
        metrics: Metrics,
        *,
        continues: bool,
    ) -> None:
        self._n = requests[0].params.n
        self.choices = self._n * len(requests)
        self._prompt_tokens = sum(len(request.prompt) for request in requests)
        self._metrics = metrics
        stops = StopStrings(requests[0].params.stop)
        self._answers = [
            Answer(tokenizer, request.params, stops, len(request.prompt), continues=continues)
            for request in requests
            for _ in range(self._n)
        ]
        self._open = set(range(self.choices))
        self._completion_tokens = [0] * self.choices
        self._cached_tokens = [0] * len(requests)
        self._last_s: list[float | None] = [None] * self.choices  # when each choice's latest tokens were taken
        self._streams: list[Stream] = []
        self._arrived = asyncio.Event()  # something has come on one of them
        try:
            for request in requests:
                self._streams.append(client.submit(request, self._arrived))
        except BaseException:
            self.close()
            raise

    async def deltas(self) -> list[Delta]:
        """What arrived since the last call, `choice` being the index; empty once every choice has ended.

        However much a choice got since then is one delta. Its last one has `finish`, and with it ERROR and `error`
        if the engine gave it up. Cancelling a call loses nothing.
        """
        while self._open:
            self._arrived.clear()
            deltas: list[Delta] = []
            for prompt, stream in enumerate(self._streams):
                deltas += _joined(filter(None, (self._push(prompt, output) for output in stream.take())))
            if deltas:
                return deltas
            await self._arrived.wait()
        return []

    def usage(self) -> UsageBody:
        """Tokens so far: prompts once each, whatever the number of their choices."""
        return usage_body(
            self._prompt_tokens,
            completion_tokens=sum(self._completion_tokens),
            cached_tokens=sum(self._cached_tokens),
        )

    def close(self) -> None:
        """Abort what is unfinished. May be called again."""
        for stream in self._streams:
            stream.abort()

    def _push(self, prompt: int, output: Output) -> Delta | None:
        """Fold an output into its choice's answer. None for what comes after a stop string."""
        index = output.choice + prompt * self._n
        if index not in self._open:
            return None
        delta = self._answers[index].push(output)
        delta.choice = index
        if delta.finish is FinishReason.ABORT:  # not our doing: our aborts end the answer first
            delta.finish = FinishReason.ERROR
            delta.error = describe(EngineUnavailable("The server is stopping; the answer is incomplete."))
        if delta.finish is not None:
            self._open.discard(index)
            if output.finish is None:
                self._streams[prompt].abort(output.choice)
        self._count(prompt, index, output, delta)
        return delta

    def _count(self, prompt: int, index: int, output: Output, delta: Delta) -> None:
        self._completion_tokens[index] += len(delta.tokens)
        if delta.usage is not None:
            self._completion_tokens[index] = delta.usage.completion_tokens
        if output.usage is not None and output.choice == 0:
            self._cached_tokens[prompt] = output.usage.cached_tokens
        stream = self._streams[prompt]
        now = time.perf_counter()
        if delta.tokens:
            last_s = self._last_s[index]
            if last_s is not None:
                self._metrics.tokens_arrived(len(delta.tokens), now - last_s)
            elif stream.first_token_s is not None:
                self._metrics.first_token_s.observe(stream.first_token_s - stream.submitted_s)
            self._last_s[index] = now
        if delta.finish is not None:
            self._metrics.choice_finished(delta.finish, now - stream.submitted_s)


def engine_requests(id_: str, prompts: list[list[int]], params: SamplingParams, *, salt: str) -> list[Request]:
    """One request per prompt. Where the client gave no seed one is drawn here, so that a restart goes on exactly.

    InvalidRequest for a salt that is too long: the prefix cache keeps it for as long as it keeps a prompt.
    """
    if len(salt) > MAX_SALT_CHARS:
        raise InvalidRequest(
            f"cache_salt may have {MAX_SALT_CHARS} characters, got {len(salt)}: send a hash of it", param="cache_salt"
        )
    return [
        Request(
            id=f"{id_}-{index}",
            prompt=prompt,
            params=params,
            seed=secrets.randbits(SEED_BITS) if params.seed is None else params.seed,
            salt=salt,
        )
        for index, prompt in enumerate(prompts)
    ]


def usage_body(prompt_tokens: int, *, completion_tokens: int, cached_tokens: int) -> UsageBody:
    return UsageBody(
        prompt_tokens,
        completion_tokens,
        prompt_tokens + completion_tokens,
        PromptTokensDetails(cached_tokens),
        CompletionTokensDetails(),
    )


def _joined(deltas: Iterable[Delta]) -> list[Delta]:
    """One delta for all of a choice; an error stays a delta of its own."""
    joined: list[Delta] = []
    latest: dict[int, Delta] = {}
    for delta in deltas:
        whole = latest.get(delta.choice)
        if whole is None or delta.error is not None:
            latest[delta.choice] = delta
            joined.append(delta)
            continue
        whole.text += delta.text
        whole.tokens = whole.tokens + delta.tokens
        if delta.logprobs:
            whole.logprobs = (whole.logprobs or []) + delta.logprobs
        whole.finish, whole.stop, whole.usage = delta.finish, delta.stop, delta.usage
    return joined
