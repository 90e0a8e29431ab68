"""GET /health, /ping and /version. Answered by the front end alone, so a busy engine never holds them up."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

import octavo
from octavo.errors import EngineUnavailable
from octavo.server.deps import Deps
from octavo.server.errors import UNAVAILABLE_RETRY_S, JSONResponse, error_body


class HealthRoutes:
    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    async def health(self, _: Request) -> Response:
        """200 when requests are served now; 503 with `status` loading, restarting, dead, closed or draining."""
        client = self._deps.client
        state = "draining" if self._deps.draining and client.state == "ready" else client.state
        if state == "ready":
            return JSONResponse({"status": "ok"})
        error = error_body(EngineUnavailable(f"The engine is {state}."))
        return JSONResponse(
            {"status": state, "error": error},
            status_code=HTTPStatus.SERVICE_UNAVAILABLE,
            headers={"retry-after": str(UNAVAILABLE_RETRY_S)},
        )

    async def version(self, _: Request) -> Response:
        return JSONResponse({"version": octavo.__version__})
