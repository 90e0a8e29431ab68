"""A client of any OpenAI server that measures: one connection, one chat at a time, a time stamp per event. On
`http.client` in the caller's thread, because every user of a load test is a thread that waits.
"""

from __future__ import annotations

import http.client
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

TIMEOUT_S = 600.0
ERROR_CHARACTERS = 300


class ServerRefused(Exception):
    """The server answered with an HTTP status that is no success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message[:ERROR_CHARACTERS]}")
        self.status = status


@dataclass(slots=True)
class Exchange:
    """One measured chat. Times in seconds on `time.perf_counter`; `gaps` lie between events that carried text.

    Token counts are the server's own usage, or else the number of events with text.
    """

    started: float
    first: float | None = None
    ended: float = 0.0
    gaps: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    output_tokens: int = 0
    error: str | None = None


class Client:
    """`base_url` is the server's address, with or without /v1. One thread at a time."""

    def __init__(self, base_url: str) -> None:
        url = urllib.parse.urlsplit(base_url if "//" in base_url else f"http://{base_url}")
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(url.hostname or "127.0.0.1", url.port, timeout=TIMEOUT_S)
        self._root = url.path.rstrip("/").removesuffix("/v1")

    def close(self) -> None:
        self._connection.close()

    def get(self, path: str) -> bytes:
        """The body at `path`. ServerRefused, or OSError when nobody answers."""
        response = self._send("GET", path)
        return response.read()

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The JSON answer to `body`. ServerRefused, or OSError when nobody answers."""
        response = self._send("POST", path, body)
        answer: dict[str, Any] = msgspec.json.decode(response.read())
        return answer

    def chat(self, body: dict[str, Any]) -> Exchange:
        """Stream one chat completion and measure it. Never raises: a failure is in `error`."""
        exchange = Exchange(started=time.perf_counter())
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        try:
            for event in self._events("/v1/chat/completions", streamed):
                _note(exchange, event)
        except (OSError, http.client.HTTPException, ServerRefused, msgspec.DecodeError) as error:
            exchange.error = f"{type(error).__name__}: {error}"
            self._connection.close()  # what is left on it belongs to the failed answer
        exchange.ended = time.perf_counter()
        if exchange.error is None and exchange.first is None:
            exchange.first = exchange.ended  # an answer without visible text still ended
        return exchange

    def _events(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        response = self._send("POST", path, body)
        finished = False
        while line := response.readline():
            data = line.strip().removeprefix(b"data:").strip()
            if not line.startswith(b"data:") or not data:
                continue
            finished = finished or data == b"[DONE]"
            if not finished:  # after [DONE] only the end of the body is awaited, to keep the connection
                yield msgspec.json.decode(data)
        if not finished:
            raise http.client.IncompleteRead(b"", None)

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> http.client.HTTPResponse:
        payload = None if body is None else msgspec.json.encode(body)
        response = self._answer(method, path, payload)
        if response.status >= 300:
            raise ServerRefused(response.status, response.read().decode(errors="replace"))
        return response

    def _answer(self, method: str, path: str, payload: bytes | None) -> http.client.HTTPResponse:
        """On the kept connection; on a new one where the server has given that up meanwhile, as servers do after a
        while or a number of requests."""
        kept = self._connection.sock is not None
        try:
            self._connection.request(method, self._root + path, payload, {"Content-Type": "application/json"})
            return self._connection.getresponse()
        except ConnectionError:
            self._connection.close()
            if not kept:
                raise
            return self._answer(method, path, payload)


def _note(exchange: Exchange, event: dict[str, Any]) -> None:
    """Fold one event of the stream into the measurement."""
    now = time.perf_counter()
    if event.get("error"):
        exchange.error = str(event["error"])[:ERROR_CHARACTERS]
    if usage := event.get("usage"):
        exchange.prompt_tokens = usage["prompt_tokens"]
        exchange.output_tokens = usage["completion_tokens"]
    choices = event.get("choices") or [{}]
    if not (choices[0].get("delta") or {}).get("content"):
        return
    if exchange.first is None:
        exchange.first = now
    else:
        exchange.gaps.append(now - exchange.ended)
    exchange.ended = now  # until the chat ends: the time of the last text
    if not event.get("usage"):
        exchange.output_tokens += 1
