"""A user of an OpenAI server: one kept connection, one streamed chat at a time, a time stamp per read. Hundreds of
users share a thread, and a read costs little, since all this takes the cores that the measured server needs.
"""

from __future__ import annotations

import asyncio
import ssl
import time
import urllib.parse
from typing import Any

import httptools
import msgspec

from octavo.bench.exchange import ERROR_CHARACTERS, Exchange

SILENCE_S = 600.0
CHAT = "/v1/chat/completions"


class ChatFailed(Exception):
    """The answer did not come whole; the message says why."""


class Unanswered(ChatFailed):
    """The connection ended before a byte of the answer had come."""


class User:
    """`base_url` is the server's address, with or without /v1. close() when there is no more to ask."""

    def __init__(self, base_url: str) -> None:
        url = urllib.parse.urlsplit(base_url if "//" in base_url else f"http://{base_url}")
        self._secure = url.scheme == "https"
        self._host = url.hostname or "127.0.0.1"
        self._port = url.port or (443 if self._secure else 80)
        self._path = url.path.rstrip("/").removesuffix("/v1") + CHAT
        self._netloc = url.netloc.rpartition("@")[2]
        self._connection: _Connection | None = None

    async def chat(self, body: dict[str, Any]) -> Exchange:
        """Stream one chat completion and measure it. Never raises: a failure is in `error`."""
        exchange = Exchange(started=time.perf_counter())
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        try:
            await self._ask(self._request(msgspec.json.encode(streamed)), exchange)
        except (OSError, ChatFailed) as error:
            exchange.error = f"{type(error).__name__}: {error}"
            self.close()  # what is left on the connection belongs to the failed answer
        exchange.end(time.perf_counter())
        return exchange

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _ask(self, request: bytes, exchange: Exchange) -> None:
        """On the kept connection; on a new one where the server has given that up meanwhile, as servers do after a
        while or a number of requests."""
        kept = self._connection
        if kept is not None and kept.usable:
            try:
                await kept.ask(request, exchange)
                return
            except Unanswered:
                self.close()
        self._connection = await self._connect()
        await self._connection.ask(request, exchange)

    async def _connect(self) -> _Connection:
        context = ssl.create_default_context() if self._secure else None
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, self._host, self._port, ssl=context)
        return connection

    def _request(self, payload: bytes) -> bytes:
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: {self._netloc}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(payload)}\r\n\r\n"
        )
        return head.encode() + payload


class _Connection(asyncio.Protocol):
    """One connection and the answer that is being read from it. Its `on_...` are called by the parser."""

    def __init__(self) -> None:
        self.usable = False
        self._transport: asyncio.Transport | None = None
        self._answer: _Answer | None = None

    async def ask(self, request: bytes, exchange: Exchange) -> None:
        """Send and read until the answer's end. ChatFailed where that does not come."""
        assert self._transport is not None
        self._answer = answer = _Answer(exchange)
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)
        try:
            await answer.over()
        finally:
            self._answer = None

    def close(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.usable = True

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.close()  # nobody has asked
            return
        self._answer.now = time.perf_counter()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._answer.fail(ChatFailed(f"this is no HTTP response: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        self.usable = False
        if self._answer is not None:
            self._answer.cut_off(error)

    def on_headers_complete(self) -> None:
        if self._answer is not None:
            self._answer.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if self._answer is not None:
            self._answer.read(body)

    def on_message_complete(self) -> None:
        self.usable = self.usable and self._parser.should_keep_alive()
        if self._answer is not None:
            self._answer.complete()


class _Answer:
    """An answer as far as it has come. Format: server-sent events, as OpenAI uses them."""

    def __init__(self, exchange: Exchange) -> None:
        self.status: int | None = None
        self.now = time.perf_counter()
        self._exchange = exchange
        self._rest = b""  # of a line, or all of a refusal
        self._finished = False  # [DONE] has come
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def over(self) -> None:
        """Returns at the end; ChatFailed where there is no good one, or no word for SILENCE_S."""
        while not self._over.done():
            heard = self.now
            await asyncio.wait({self._over}, timeout=SILENCE_S)
            if self.now == heard and not self._over.done():
                self.fail(ChatFailed(f"the server said nothing for {SILENCE_S:.0f} s"))
        self._over.result()

    def fail(self, error: ChatFailed) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    def read(self, body: bytes) -> None:
        lines = (self._rest + body).split(b"\n") if self._is_stream() else [self._rest + body]
        self._rest = lines.pop()
        for line in lines:
            data = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
            self._finished = self._finished or data == b"[DONE]"
            if not data or self._finished or self._over.done():
                continue  # after [DONE] only the end of the body is awaited, to keep the connection
            try:
                self._exchange.note(data, self.now)
            except msgspec.DecodeError as error:
                self.fail(ChatFailed(f"an event of the stream cannot be read: {error}"))

    def complete(self) -> None:
        """The response has come whole."""
        if not self._is_stream():
            self.fail(ChatFailed(f"HTTP {self.status}: {self._rest.decode(errors='replace')[:ERROR_CHARACTERS]}"))
        elif not self._finished:
            self.fail(ChatFailed("the stream ended before [DONE]"))
        elif not self._over.done():
            self._over.set_result(None)

    def cut_off(self, error: Exception | None) -> None:
        """The connection has ended, which is the end of a body that nothing else ends."""
        if self._finished or (self.status is not None and not self._is_stream()):
            self.complete()
        elif self.status is None:
            self.fail(Unanswered(f"the server closed the connection without an answer ({error or 'end of file'})"))
        else:
            self.fail(ChatFailed(f"the connection ended inside the answer ({error or 'end of file'})"))

    def _is_stream(self) -> bool:
        return self.status is not None and self.status < 300
