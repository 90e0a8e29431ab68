"""Generation on its own, with streams made by hand: order, joining, counting, and who is told to stop."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable

import pytest
from sim_server import tiny_text

from octavo.core.engine import Stats
from octavo.errors import EngineUnavailable, QueueFull
from octavo.server.generation import Generation, engine_requests
from octavo.server.metrics import Metrics
from octavo.service.error_info import describe
from octavo.service.stream import Stream
from octavo.text.stop import MAX_STOP_CHARS
from octavo.types import MAX_CHOICES, FinishReason, Output, Request, SamplingParams, Usage

pytestmark = pytest.mark.anyio
TEXT = tiny_text()


class HandClient:
    """Hands out streams that the test fills. `accept` bounds how many requests it takes."""

    resolved, restarts, stats = None, 0, Stats()

    def __init__(self, accept: int = 100) -> None:
        self.streams: list[Stream] = []
        self.aborts: list[tuple[str, int | None]] = []
        self._accept = accept

    def submit(self, request: Request, arrived: asyncio.Event) -> Stream:
        if len(self.streams) >= self._accept:
            raise QueueFull(1, 1)
        self.streams.append(Stream(request, self._abort(request.id), arrived))
        return self.streams[-1]

    def _abort(self, id_: str) -> Callable[[int | None], None]:
        return lambda choice: self.aborts.append((id_, choice))


def generation(client: HandClient, prompts: int = 1, **params: object) -> Generation:
    requests = engine_requests("r", [[5, 6, 7]] * prompts, SamplingParams(**params), salt="")
    return Generation(client, TEXT.tokenizer, requests, Metrics(client, model="m"), continues=True)


def output(text: str, *, choice: int = 0, finish: FinishReason | None = None, count: int = 0) -> Output:
    tokens = TEXT.tokenizer.encode(text, add_special=False)
    usage = Usage(3, count, 2) if finish else None
    return Output("r", choice, tokens, finish=finish, usage=usage)


async def test_what_waited_comes_as_one_delta_per_choice() -> None:
    client = HandClient()
    generating = generation(client, n=2)
    for letter in "abc":
        client.streams[0].push(output(letter))
    client.streams[0].push(output("x", choice=1))
    client.streams[0].push(output("d", finish=FinishReason.LENGTH, count=4))
    first, second = await generating.deltas()
    assert (first.choice, first.text, len(first.tokens), first.finish) == (0, "abcd", 4, FinishReason.LENGTH)
    assert (second.choice, second.text, second.finish) == (1, "x", None)
    client.streams[0].push(output("", choice=1, finish=FinishReason.STOP, count=2))
    (end,) = await generating.deltas()
    assert (end.choice, end.finish) == (1, FinishReason.STOP)
    assert await generating.deltas() == []
    usage = generating.usage()
    assert (usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens_details.cached_tokens) == (3, 6, 2)
    generating.close()
    assert client.aborts == []


async def test_text_before_an_error_is_not_lost() -> None:
    client = HandClient()
    generating = generation(client)
    client.streams[0].push(output("ab"))
    failed = output("", finish=FinishReason.ERROR)
    failed.error = describe(EngineUnavailable("gone"))
    client.streams[0].push(failed)
    first, second = await generating.deltas()
    assert (first.text, first.error) == ("ab", None)
    assert second.error.message == "gone"


async def test_stop_string_ends_one_choice_in_the_engine_too() -> None:
    client = HandClient()
    generating = generation(client, n=2, stop=("bc",))
    client.streams[0].push(output("abcd", choice=1))
    (delta,) = await generating.deltas()
    assert (delta.text, delta.finish, delta.stop) == ("a", FinishReason.STOP, "bc")
    assert client.aborts == [("r-0", 1)]
    client.streams[0].push(output("more", choice=1))
    client.streams[0].push(output("", choice=1, finish=FinishReason.ABORT))
    client.streams[0].push(output("z", finish=FinishReason.LENGTH, count=1))
    (other,) = await generating.deltas()
    assert (other.choice, other.text) == (0, "z")


async def test_prompts_are_read_together_and_told_apart() -> None:
    client = HandClient()
    generating = generation(client, prompts=3, n=2)
    client.streams[2].push(output("c", choice=1))
    (delta,) = await generating.deltas()
    assert delta.choice == 5
    client.streams[0].push(output("a"))
    (delta,) = await generating.deltas()
    assert delta.choice == 0
    generating.close()
    assert client.aborts == [("r-0", None), ("r-1", None), ("r-2", None)]


async def test_cancelled_read_loses_nothing() -> None:
    client = HandClient()
    generating = generation(client)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await generating.deltas()
    client.streams[0].push(output("a"))
    assert [delta.text for delta in await generating.deltas()] == ["a"]


async def test_batch_that_is_refused_in_the_middle_is_taken_back() -> None:
    client = HandClient(accept=2)
    with pytest.raises(QueueFull):
        generation(client, prompts=3)
    assert client.aborts == [("r-0", None), ("r-1", None)]


async def test_abort_by_others_is_an_error() -> None:
    client = HandClient()
    generating = generation(client)
    client.streams[0].push(output("", finish=FinishReason.ABORT))
    (delta,) = await generating.deltas()
    assert (delta.finish, delta.error.kind) == (FinishReason.ERROR, "EngineUnavailable")


async def test_choices_share_their_stop_strings() -> None:
    """16 stop strings at their longest, for as many choices as there may be: before, half a GiB."""
    stops = tuple(letter * MAX_STOP_CHARS for letter in "abcdefghijklmnop")
    tracemalloc.start()
    generating = generation(HandClient(), n=MAX_CHOICES, stop=stops)
    mib = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    generating.close()
    assert mib < 16
