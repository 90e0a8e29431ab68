"""The outermost layer around the routes: every request gets its id, what nobody caught becomes a typed 500, and
clients that went away are counted.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server.disconnect import ClientGone
from octavo.server.errors import error_response

REQUEST_ID = "x-request-id"
_SAFE_ID = re.compile(r"[\x21-\x7e]{1,128}")

logger = logging.getLogger("octavo.server")


class Boundary:
    """Sends back the client's x-request-id, or one of ours. Traces go to the log, never to the client."""

    def __init__(self, app: ASGIApp, *, on_gone: Callable[[], None], on_failure: Callable[[int], None]) -> None:
        self._app = app
        self._on_gone = on_gone
        self._on_failure = on_failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = given if _SAFE_ID.fullmatch(given) else uuid.uuid4().hex
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except (ClientDisconnect, ClientGone):
            self._on_gone()
            logger.debug("request %s: the client went away", request_id)
        except Exception as error:
            if started:
                raise
            logger.exception("request %s failed", request_id)
            self._on_failure(HTTPStatus.INTERNAL_SERVER_ERROR)
            await error_response(error)(scope, receive, send_with_id)
