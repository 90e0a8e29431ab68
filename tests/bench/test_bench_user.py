"""One user of the load test against servers that say exactly what the test wants, in pieces of any size."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Awaitable, Callable

import pytest

from octavo.bench import user as user_module
from octavo.bench.exchange import Exchange
from octavo.bench.user import User

pytestmark = pytest.mark.anyio

BODY = {"model": "m", "messages": [{"role": "user", "content": "a b"}], "max_tokens": 3}
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


def event(**body: object) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def text(content: str | None) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": content}}])


USAGE = event(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10})
DONE = b"data: [DONE]\n\n"
EVENTS = [text(""), b": a comment\n\n", text("one"), text("zwei ü"), text("three"), text(None), USAGE, DONE]


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def stream(*events: bytes) -> bytes:
    return CHUNKED + b"".join(map(chunk, events)) + chunk(b"")


class Server:
    """Gives its connections' requests the answers in turn, and counts both."""

    def __init__(self, *answers: Answer | bytes) -> None:
        self._answers = iter(answers)
        self.connections = 0
        self.requests: list[bytes] = []

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.base_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while request := await _request(reader):
            self.requests.append(request)
            answer = next(self._answers, None)
            if answer is None:
                break
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(writer)
            if writer.is_closing():
                break
        writer.close()


async def _request(reader: asyncio.StreamReader) -> bytes:
    """Empty where the client has left."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return head + await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


async def ask(*answers: Answer | bytes, times: int = 1) -> tuple[list[Exchange], Server]:
    async with Server(*answers) as server:
        user = User(server.base_url)
        exchanges = [await user.chat(BODY) for _ in range(times)]
        user.close()
        return exchanges, server


def in_pieces(data: bytes, sizes: Callable[[], int]) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        start = 0
        while start < len(data):
            end = start + sizes()
            writer.write(data[start:end])
            await writer.drain()
            await asyncio.sleep(0)
            start = end

    return answer


def then_close(data: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    return answer


@pytest.mark.parametrize("seed", range(8))
async def test_an_answer_is_the_same_however_it_is_cut(seed: int) -> None:
    rng = random.Random(seed)
    most = rng.choice([1, 2, 7, 40, 10_000])
    (exchange,), server = await ask(in_pieces(stream(*EVENTS), lambda: rng.randint(1, most)))
    assert exchange.error is None
    assert (exchange.prompt_tokens, exchange.output_tokens, len(exchange.gaps)) == (7, 3, 2)
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:")
    assert json.loads(body) == {**BODY, "stream": True, "stream_options": {"include_usage": True}}


async def test_times_are_those_of_the_events() -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        for pause_s, data in ((0.05, CHUNKED + chunk(text("a"))), (0.1, chunk(text("b"))), (0.02, chunk(DONE + b""))):
            await asyncio.sleep(pause_s)
            writer.write(data)
            await writer.drain()
        writer.write(chunk(b""))

    before = time.perf_counter()
    (exchange,), _ = await ask(answer)
    assert exchange.first is not None
    assert before <= exchange.started <= exchange.first
    assert 0.05 <= exchange.first - exchange.started < 0.09
    assert 0.1 <= exchange.gaps[0] < 0.14
    assert exchange.ended - exchange.first >= 0.12
    assert exchange.output_tokens == 2  # no usage came, so events count


async def test_a_connection_is_kept_between_chats() -> None:
    exchanges, server = await ask(stream(*EVENTS), stream(*EVENTS), stream(*EVENTS), times=3)
    assert [exchange.error for exchange in exchanges] == [None] * 3
    assert server.connections == 1
    assert exchanges[0].ended <= exchanges[1].started


async def test_a_connection_that_was_given_up_is_opened_again() -> None:
    """Between two chats, with and without a word, and under the second request."""
    closing = stream(*EVENTS).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
    for first in (closing, then_close(stream(*EVENTS))):
        exchanges, server = await ask(first, stream(*EVENTS), times=2)
        assert [exchange.error for exchange in exchanges] == [None] * 2
        assert server.connections == 2
    exchanges, server = await ask(stream(*EVENTS), then_close(b""), stream(*EVENTS), times=2)
    assert [exchange.error for exchange in exchanges] == [None] * 2
    assert (server.connections, len(server.requests)) == (2, 3)


async def test_a_body_may_end_with_its_connection_or_have_a_length() -> None:
    plain = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    body = b"".join(EVENTS)
    for answer in (then_close(plain + b"\r\n" + body), plain + f"Content-Length: {len(body)}\r\n\r\n".encode() + body):
        (exchange,), _ = await ask(answer)
        assert (exchange.error, exchange.output_tokens) == (None, 3)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (then_close(b""), "Unanswered: .*without an answer"),
        (then_close(CHUNKED + chunk(text("a"))), "ended inside the answer"),
        (then_close(b"HTTP/1.1 200 OK\r\n\r\n" + text("a")), "ended inside the answer"),
        (stream(text("a")), r"before \[DONE\]"),
        (b"SSH-2.0-OpenSSH\r\n", "no HTTP response"),
        (CHUNKED + b"no size\r\n", "no HTTP response"),
        (stream(b"data: {\n\n", DONE), "cannot be read"),
        (stream(b'data: {"choices": 3}\n\n', DONE), "cannot be read"),
        (stream(event(error={"message": "out of luck"}), DONE), "out of luck"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 8\r\n\r\nnot now!", "HTTP 503: not now!"),
        (then_close(b"HTTP/1.1 500 Oh\r\n\r\nbroken"), "HTTP 500: broken"),
    ],
)
async def test_what_goes_wrong_is_told_and_the_next_chat_goes_on(answer: Answer | bytes, why: str) -> None:
    (failed, good), _ = await ask(answer, stream(*EVENTS), times=2)
    assert failed.error is not None
    assert re.search(why, failed.error)
    assert failed.first is None or failed.first <= failed.ended
    assert (good.error, good.output_tokens) == (None, 3)


async def test_nobody_there_is_told() -> None:
    exchange = await User("http://127.0.0.1:9").chat(BODY)
    assert exchange.error is not None
    assert "ConnectionRefusedError" in exchange.error


async def test_silence_ends_a_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_module, "SILENCE_S", 0.2)

    async def slow(writer: asyncio.StreamWriter) -> None:
        for data in (CHUNKED, chunk(text("a")), chunk(text("b")), chunk(text("c"))):
            writer.write(data)
            await asyncio.sleep(0.15)
        await asyncio.sleep(0.5)

    (exchange,), _ = await ask(slow)
    assert exchange.error is not None
    assert "said nothing" in exchange.error
    assert exchange.output_tokens == 3
