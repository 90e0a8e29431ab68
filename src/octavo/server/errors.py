"""How an error looks on the wire: status, OpenAI error body, headers. The only place that knows; every route, and
what Starlette itself refuses, is answered from here.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import UNSET
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from octavo import errors
from octavo.server.openai import ErrorAnswer, ErrorBody

UNAVAILABLE_RETRY_S = 5

INVALID = "invalid_request_error"
SERVER_ERROR = "server_error"
# First match wins; everything else is a 500.
STATUSES: tuple[tuple[type[errors.OctavoError], HTTPStatus, str], ...] = (
    (errors.ModelNotFound, HTTPStatus.NOT_FOUND, INVALID),
    (errors.RequestTooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, INVALID),
    (errors.InvalidRequest, HTTPStatus.BAD_REQUEST, INVALID),
    (errors.QueueFull, HTTPStatus.TOO_MANY_REQUESTS, "rate_limit_error"),
    (errors.EngineUnavailable, HTTPStatus.SERVICE_UNAVAILABLE, "unavailable_error"),
)


class JSONResponse(Response):
    """A msgspec struct as the body."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


def error_body(error: Exception) -> ErrorBody:
    """The OpenAI error object. Errors that nobody raised on purpose keep their words to themselves."""
    if isinstance(error, HTTPException):
        return ErrorBody(error.detail, INVALID)
    if not isinstance(error, errors.OctavoError):
        return ErrorBody("The server failed on this request. Quote its x-request-id when you report it.", SERVER_ERROR)
    _, kind = _row(error)
    body = ErrorBody(str(error), kind, getattr(error, "param", None), getattr(error, "code", None))
    if isinstance(error, errors.QueueFull):
        body.code = "queue_full"
    elif isinstance(error, errors.ContextLengthExceeded):
        # an error that came over the engine pipe has its numbers in its words only
        body.n_prompt_tokens = getattr(error, "prompt_tokens", UNSET)
        body.n_ctx = getattr(error, "context_length", UNSET)
    return body


def error_response(error: Exception) -> Response:
    """The whole answer to a request that ends with this error."""
    headers: dict[str, str] = {}
    if isinstance(error, HTTPException):
        headers.update(error.headers or {})
    elif isinstance(error, errors.QueueFull):
        headers["retry-after"] = str(max(1, round(error.retry_after_s)))
    elif isinstance(error, errors.EngineUnavailable):
        headers["retry-after"] = str(UNAVAILABLE_RETRY_S)
    elif isinstance(error, errors.EngineDied):
        headers["x-should-retry"] = "false"  # what killed the engine several times would do it again
    return JSONResponse(ErrorAnswer(error_body(error)), status_code=status_of(error), headers=headers)


async def answer_error(request: Request, error: Exception) -> Response:
    """Starlette's exception handler for everything that is raised on purpose."""
    if isinstance(error, HTTPException):
        asked = f"{request.method} {request.url.path[:200]}"
        if error.status_code == HTTPStatus.NOT_FOUND:
            error.detail = f"There is no {asked} here. Chats go to POST /v1/chat/completions."
        elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            error.detail = f"There is no {asked} here, only {(error.headers or {})['Allow']}."
    return error_response(error)


def status_of(error: Exception) -> HTTPStatus:
    """The HTTP status of an answer that ends with this error."""
    return HTTPStatus(error.status_code) if isinstance(error, HTTPException) else _row(error)[0]


def _row(error: Exception) -> tuple[HTTPStatus, str]:
    return next(
        ((status, kind) for class_, status, kind in STATUSES if isinstance(error, class_)),
        (HTTPStatus.INTERNAL_SERVER_ERROR, SERVER_ERROR),
    )
