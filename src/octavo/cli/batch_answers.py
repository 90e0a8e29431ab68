"""The answers of a batch: the server's own routes, asked without a socket, with as many requests under way as keep the
engine busy. Knows no files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from http import HTTPStatus

import msgspec
from starlette.types import ASGIApp

from octavo.cli.asgi import post
from octavo.cli.batch_file import BatchLine, BatchResponse, BatchResult
from octavo.cli.front_end import front_end
from octavo.config import EngineConfig, ServerConfig
from octavo.errors import OctavoError
from octavo.progress import LoadBar
from octavo.server.app import create_app
from octavo.server.deps import Deps

WAIT_S = 0.5  # before a request that met a full queue or a restarting engine is asked again
WAITS = 120

Lines = Iterator[BatchLine | BatchResult]


async def answer_all(
    engine: EngineConfig, server: ServerConfig, lines: Lines, write: Callable[[BatchResult], None]
) -> None:
    """Start an engine and keep it busy: twice as many requests are under way as it computes at once."""
    with LoadBar() as bar:
        deps = front_end(engine, server, bar.update)
        app = create_app(deps)
        async with app.router.lifespan_context(app):
            resolved = await deps.client.ready()
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(2 * resolved.rows):
                        group.create_task(_answer_some(app, deps, lines, write))
            except* OctavoError as several:
                raise several.exceptions[0] from None


async def _answer_some(app: ASGIApp, deps: Deps, lines: Lines, write: Callable[[BatchResult], None]) -> None:
    """Take lines, which the workers share, until there are none."""
    for line in lines:
        write(line if isinstance(line, BatchResult) else await _answer(app, deps, line))


async def _answer(app: ASGIApp, deps: Deps, line: BatchLine) -> BatchResult:
    """Raises the engine's typed error when it is gone for good; a full queue is waited for."""
    for _ in range(WAITS):
        answer = await post(app, line.url, bytes(line.body))
        if answer.status not in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            break
        await deps.client.ready()
        await asyncio.sleep(WAIT_S)
    request_id = answer.headers.get("x-request-id", "")
    return BatchResult.of(line.custom_id, BatchResponse(answer.status, request_id, msgspec.Raw(answer.body)))
