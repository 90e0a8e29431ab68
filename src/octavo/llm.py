"""LLM: the offline API. A model and its engine in this process, synchronous, without threads. Owns the requests under
way; what an answer is made of is `generation.py`, and how the engine is built `build.py`.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec

from octavo.build import build_engine, engine_config
from octavo.checkpoint.store import Store, default_store_dir
from octavo.config import DEFAULT_MODEL, EngineConfig, Resolved
from octavo.core.engine import Engine, Stats
from octavo.errors import EngineUnavailable, InvalidRequest
from octavo.generation import Collector, Generation, TextDelta, generation
from octavo.interrupt import InterruptLater
from octavo.progress import BatchBar, LoadBar
from octavo.text.answer import Answer, Delta
from octavo.text.load import load_text
from octavo.text.stop import StopStrings
from octavo.text.tokenizer import Tokenizer
from octavo.types import SEED_BITS, Output, Request, SamplingParams

Prompt = str | Sequence[int]
Message = Mapping[str, Any]

DEFAULT_MAX_TOKENS = 256
UNBOUNDED_QUEUE = 2**31  # a batch is one caller's own; nobody has to be turned away


class Run:
    """One request under way. Deltas of all its choices go to `sink` as they come."""

    def __init__(self, request: Request, tokenizer: Tokenizer, sink: Callable[[Delta], None]) -> None:
        self.id = request.id
        prompt_tokens = len(request.prompt)
        stops = StopStrings(request.params.stop)
        self._answers = [Answer(tokenizer, request.params, stops, prompt_tokens) for _ in range(request.params.n)]
        self._open = len(self._answers)
        self._sink = sink

    @property
    def ended(self) -> bool:
        return self._open == 0

    def push(self, output: Output) -> bool:
        """Pass one Output on. True when a stop string ended the choice, which the engine does not know yet."""
        answer = self._answers[output.choice]
        if answer.ended:
            return False
        delta = answer.push(output)
        self._open -= answer.ended
        self._sink(delta)
        return answer.ended and output.finish is None

    def cancel(self) -> None:
        self._open = 0


class TextStream(Iterator[TextDelta]):
    """The pieces of an answer as they are computed. Leaving it early, or `close`, ends the request."""

    def __init__(self, llm: LLM, start: Callable[[Callable[[Delta], None]], Run]) -> None:
        self._deltas: deque[Delta] = deque()
        self._llm = llm
        self._run = start(self._deltas.append)

    def __next__(self) -> TextDelta:
        while not self._deltas:
            if self._run.ended:
                raise StopIteration
            self._llm._step()
        return TextDelta.of(self._deltas.popleft())

    def close(self) -> None:
        self._llm._cancel(self._run)
        self._llm._tell_cancelled()
        self._deltas.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_run"):  # absent when the request was refused
            self._llm._cancel(self._run)


class LLM:
    """A model, loaded into this process. Not for use by several threads at once.

    `model` is a name from `octavo list`, a directory, a .gguf file or a hub id; `options` are the other fields of
    EngineConfig. Loading shows a bar on a terminal (`progress=False` never). Raises ConfigError, StoreError,
    CheckpointError or UnsupportedModel.

    Several streams, and batches between their pieces, may be under way together; all share each step. Where
    `params` is None, answers have temperature 1 and end after 256 tokens, or sooner where the context is full.
    """

    def __init__(self, model: str = DEFAULT_MODEL, *, progress: bool | None = None, **options: Any) -> None:
        self.config: EngineConfig = engine_config({"queue": UNBOUNDED_QUEUE, **options, "model": model})
        with LoadBar(progress) as bar:
            path = Store(default_store_dir()).resolve(model, offline=self.config.offline, progress=bar.update)
            self.text = load_text(path)
            order = {
                "config": msgspec.to_builtins(self.config),
                "path": str(path),
                "eos_ids": sorted(self.text.eos_ids),
            }
            engine, resolved = build_engine(order, bar.update)
        self.resolved: Resolved = resolved
        self._engine: Engine | None = engine
        self._runs: dict[str, Run] = {}
        self._cancelled: list[str] = []
        self._requests = 0

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool | None = None,
    ) -> list[Generation]:
        """Continue each prompt (text, or token ids), in order; `params` for all, or one for each.

        A single prompt gives a list of one. InvalidRequest for any prompt is raised before any of them runs.
        A bar is shown on a terminal for several prompts.
        """
        return self._batch([self._encode(prompt) for prompt in _listed(prompts)], params, progress)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool | None = None,
        **template: Any,
    ) -> list[Generation]:
        """Answer one conversation, or several: lists of {"role": ..., "content": ...}. Otherwise as `generate`.

        `template` reaches the chat template (`tools`, `enable_thinking` and whatever else the model's knows).
        """
        several = bool(messages) and not isinstance(messages[0], Mapping)
        conversations: Sequence[Any] = messages if several else [messages]
        return self._batch([self._render(chat, template) for chat in conversations], params, progress)

    def stream(
        self, prompt: Prompt | Sequence[Message], params: SamplingParams | None = None, **template: Any
    ) -> TextStream:
        """The answer to one prompt or conversation, piece by piece: `for piece in llm.stream("Once"): print(piece)`.

        With n > 1 the choices' pieces come mixed; `piece.choice` tells them apart. The request runs from now on,
        whenever this or anything else asks for tokens, until the stream is used up, closed or dropped.
        """
        is_chat = isinstance(prompt, Sequence) and len(prompt) > 0 and isinstance(prompt[0], Mapping)
        tokens = self._render(prompt, template) if is_chat else self._encode(prompt)
        each = self._defaults(tokens) if params is None else params
        return TextStream(self, lambda sink: self._start(tokens, each, sink))

    @property
    def tokenizer(self) -> Tokenizer:
        return self.text.tokenizer

    def stats(self) -> Stats:
        """What the engine holds and has done; see `core.engine.Stats`."""
        engine = self._live_engine()
        self._tell_cancelled()
        return engine.stats()

    def close(self) -> None:
        """Free weights and cache. Streams that are under way end without a last piece."""
        for run in self._runs.values():
            run.cancel()
        self._runs.clear()
        self._engine = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        resolved = self.resolved
        state = "" if self._engine is not None else ", closed"
        return (
            f"LLM({self.config.model!r}, backend={resolved.backend!r}, dtype={resolved.dtype!r}, "
            f"max_len={resolved.max_len}, kv_tokens={resolved.kv_tokens}{state})"
        )

    # --- prompts ---

    def _encode(self, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt, add_special=True)
        if isinstance(prompt, Sequence) and all(isinstance(token, int) for token in prompt):
            return list(prompt)
        raise InvalidRequest(f"a prompt must be text or a list of token ids, got {prompt!r:.60}", param="prompt")

    def _render(self, messages: Any, template: Mapping[str, Any]) -> list[int]:
        return self.tokenizer.encode(self.text.template.render(messages, **template), add_special=False)

    def _defaults(self, tokens: list[int]) -> SamplingParams:
        """What holds where the caller gave no params: a bounded answer, which always fits."""
        return SamplingParams(max_tokens=max(1, min(DEFAULT_MAX_TOKENS, self.resolved.max_len - len(tokens))))

    # --- running ---

    def _batch(
        self, prompts: list[list[int]], params: SamplingParams | Sequence[SamplingParams] | None, progress: bool | None
    ) -> list[Generation]:
        settings = [self._defaults(tokens) for tokens in prompts] if params is None else _for_each(params, len(prompts))
        collected = [[Collector(choice) for choice in range(each.n)] for each in settings]
        runs: list[Run] = []
        try:
            for index, (tokens, each) in enumerate(zip(prompts, settings, strict=True)):
                runs.append(self._start(tokens, each, _into(collected[index]), f"in prompt {index} of the batch"))
            self._finish(runs, progress)
        finally:
            for run in runs:
                self._cancel(run)
            self._tell_cancelled()
        return [
            generation(tokens, collectors, with_logprobs=each.logprobs is not None)
            for tokens, collectors, each in zip(prompts, collected, settings, strict=True)
        ]

    def _finish(self, runs: list[Run], progress: bool | None) -> None:
        with BatchBar(len(runs), progress) as bar:
            for index, run in enumerate(runs):
                while not run.ended:
                    new_tokens = self._step()
                    bar.update(index + sum(later.ended for later in runs[index:]), new_tokens)

    def _start(
        self, tokens: list[int], params: SamplingParams, sink: Callable[[Delta], None], where: str | None = None
    ) -> Run:
        """Queue a request. InvalidRequest, or QueueFull when a `queue` bound was asked for."""
        engine = self._live_engine()
        seed = params.seed if params.seed is not None else secrets.randbits(SEED_BITS)
        request = Request(id=str(self._requests), prompt=tokens, params=params, seed=seed)
        run = Run(request, self.tokenizer, sink)
        try:
            engine.add(request)
        except InvalidRequest as error:
            if where is not None:
                error.add_note(where)
            raise
        self._requests += 1
        self._runs[run.id] = run
        return run

    def _step(self) -> int:
        """One engine step; returns how many tokens it brought. Ctrl-C waits for its end."""
        engine = self._live_engine()
        with InterruptLater():
            self._tell_cancelled()
            assert not engine.idle, "a run waits for an engine that has nothing to do"
            try:
                outputs = engine.step()
            except BaseException:  # half a step is done: nothing that this engine would say now could be trusted
                self.close()
                raise
            for output in outputs:
                run = self._runs.get(output.request_id)
                if run is None:
                    continue
                if run.push(output):
                    engine.abort(output.request_id, output.choice)
                if run.ended:
                    del self._runs[run.id]
        return sum(len(output.tokens) for output in outputs)

    def _cancel(self, run: Run) -> None:
        """End a run if it has not ended. The engine is told later, because the garbage collector may call this (for a
        dropped stream) in the middle of a step."""
        if not run.ended:
            run.cancel()
            self._runs.pop(run.id, None)
            self._cancelled.append(run.id)

    def _tell_cancelled(self) -> None:
        while self._cancelled:
            request_id = self._cancelled.pop()
            if self._engine is not None:
                self._engine.abort(request_id)

    def _live_engine(self) -> Engine:
        if self._engine is None:
            raise EngineUnavailable("this LLM is closed; make a new one")
        return self._engine


def _listed(prompts: Any) -> list[Any]:
    """A single prompt as a list of one."""
    if isinstance(prompts, str) or not isinstance(prompts, Iterable):
        return [prompts]
    several = list(prompts)
    return [several] if several and all(isinstance(token, int) for token in several) else several


def _for_each(params: SamplingParams | Sequence[SamplingParams], count: int) -> list[SamplingParams]:
    if isinstance(params, SamplingParams):
        return [params] * count
    if not isinstance(params, Sequence) or any(not isinstance(each, SamplingParams) for each in params):
        raise InvalidRequest(f"params must be SamplingParams, or a list of them, got {params!r:.60}")
    if len(params) != count:
        raise InvalidRequest(f"there are {count} prompts and {len(params)} params: give one for all, or one each")
    return list(params)


def _into(collectors: Sequence[Collector]) -> Callable[[Delta], None]:
    return lambda delta: collectors[delta.choice].add(delta)
