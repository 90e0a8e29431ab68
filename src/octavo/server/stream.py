"""Server-sent events: framing, keep-alive, and the response that carries them. What the events say is the routes'
affair.

Format: WHATWG HTML, "Server-sent events", as OpenAI uses it: `data: {json}` frames, then `data: [DONE]`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from octavo.server.disconnect import until_gone

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
KEEP_ALIVE_S = 15.0

_encoder = msgspec.json.Encoder()


def event(body: Any) -> bytes:
    """One frame. JSON holds no raw line breaks, so it is one `data` line."""
    return b"data: " + _encoder.encode(body) + b"\n\n"


class EventStream(Response):
    """Sends what `events` yields, each piece as soon as it comes; a comment every `keep_alive_s` of silence.

    Raises ClientGone when the client disconnects; `on_end` is called in any case. A slow client holds up only its
    own `events`, which then find several tokens at once.
    """

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncIterator[bytes], *, on_end: Callable[[], None], keep_alive_s: float = KEEP_ALIVE_S
    ) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"})
        self._events = events
        self._on_end = on_end
        self._keep_alive_s = keep_alive_s
        self._sent_at = 0.0

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_gone(receive, self._send(send))
        finally:
            self._on_end()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        clock = asyncio.get_running_loop().time
        self._sent_at = clock()
        ticking = asyncio.ensure_future(self._keep_alive(send))
        try:
            async for piece in self._events:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                self._sent_at = clock()
        finally:
            ticking.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _keep_alive(self, send: Send) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            quiet_s = clock() - self._sent_at
            if quiet_s >= self._keep_alive_s:
                await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
                self._sent_at, quiet_s = clock(), 0.0
            await asyncio.sleep(self._keep_alive_s - quiet_s)
