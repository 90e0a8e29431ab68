"""The application: which route is served by what, and what surrounds them all."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from octavo.errors import OctavoError
from octavo.server.boundary import REQUEST_ID, Boundary
from octavo.server.chat import ChatRoute
from octavo.server.completions import CompletionRoute
from octavo.server.deps import Deps
from octavo.server.errors import answer_error
from octavo.server.health import HealthRoutes
from octavo.server.models import ModelRoutes

# Web pages may talk to this server only when they come from this machine.
LOCAL_ORIGINS = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"


def create_app(deps: Deps) -> Starlette:
    """The ASGI application. Its lifespan starts the engine without waiting for it to load, and closes it."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await deps.client.start()
        try:
            yield
        finally:
            await deps.client.close()
            deps.work.close()

    async def refuse(request: Request, error: Exception) -> Response:
        response = await answer_error(request, error)
        deps.metrics.rejected(response.status_code)
        return response

    models, health = ModelRoutes(deps), HealthRoutes(deps)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", ChatRoute(deps).create, methods=["POST"]),
            Route("/v1/completions", CompletionRoute(deps).create, methods=["POST"]),
            Route("/v1/models", models.list_all),
            Route("/v1/models/{id:path}", models.show),
            Route("/health", health.health),
            Route("/ping", health.health, methods=["GET", "POST"]),
            Route("/version", health.version),
            Route("/metrics", deps.metrics.show),
        ],
        middleware=[
            Middleware(
                CORSMiddleware,
                allow_origin_regex=LOCAL_ORIGINS,
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                expose_headers=[REQUEST_ID],
            ),
            Middleware(Boundary, on_gone=deps.metrics.disconnects.inc, on_failure=deps.metrics.rejected),
        ],
        exception_handlers={HTTPException: refuse, OctavoError: refuse},
        lifespan=lifespan,
    )
