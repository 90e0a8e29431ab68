"""Asks an ASGI application in this process, without a socket: how `octavo run` gets exactly the answers that the
server would give. Knows ASGI, and no route.

Specification: ASGI HTTP connection scope, version 2.3.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message


class Answer:
    """A complete HTTP answer. Header names are lower case."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""

    async def take(self, message: Message) -> None:
        """Called by the application with each part."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode().lower(): value.decode() for name, value in message.get("headers", ())}
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")


async def post(app: ASGIApp, path: str, body: bytes) -> Answer:
    """The application's answer to a POST of JSON. The client it sees stays until it has answered."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "client": None,
        "server": None,
    }
    unread = [body]

    async def receive() -> Message:
        if not unread:
            await asyncio.Event().wait()  # no disconnect ever comes
        return {"type": "http.request", "body": unread.pop(), "more_body": False}

    answer = Answer()
    await app(scope, receive, answer.take)
    return answer
