"""A client of any OpenAI server for what is not measured: whole answers, on `http.client` in the caller's thread. Chats
that are measured are `user.py`'s.
"""

from __future__ import annotations

import http.client
import urllib.parse
from typing import Any

import msgspec

from octavo.bench.exchange import ERROR_CHARACTERS

TIMEOUT_S = 600.0


class ServerRefused(Exception):
    """The server answered with an HTTP status that is no success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message[:ERROR_CHARACTERS]}")
        self.status = status


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
