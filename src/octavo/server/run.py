"""Run the application under uvicorn: signals, draining, and the end. Prints nothing: what the
user should know goes to callbacks.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable
from functools import partial

import uvicorn

from octavo.config import Resolved
from octavo.errors import OctavoError
from octavo.server.app import create_app
from octavo.server.deps import Deps
from octavo.server.listen import BACKLOG

# After the drain, what still hangs is a client that does not read its last bytes.
LAST_BYTES_S = 2


def run_server(
    deps: Deps,
    listener: socket.socket,
    *,
    drain_s: float,
    on_ready: Callable[[Resolved], None],
    on_drain: Callable[[int], None],
) -> None:
    """Serve until told to stop; returns when the engine is gone and the socket closed.

    The first SIGINT or SIGTERM takes no more requests, gives those under way `drain_s` seconds and ends the rest
    with an error; the second stops at once. `on_ready` is called when the engine has loaded, `on_drain` with the
    number of unfinished requests when draining begins. Raises the engine's typed error if it cannot be loaded.
    """
    _allow_many_connections()
    config = uvicorn.Config(
        create_app(deps),
        http="httptools",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=LAST_BYTES_S,
    )
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(_serve(partial(_DrainingServer, config, deps, drain_s, on_drain), listener, on_ready))


async def _serve(
    make_server: Callable[[], _DrainingServer], listener: socket.socket, on_ready: Callable[[Resolved], None]
) -> None:
    server = make_server()
    announcing = asyncio.ensure_future(_announce(server, on_ready))
    try:
        await server.serve(sockets=[listener])
    finally:
        server.forget_drain()
        await server.deps.client.close()
        if server.force_exit:
            await server.lifespan.shutdown()  # uvicorn leaves it out then; cancelled instead, it prints a traceback
        await announcing
    if server.failure is not None:
        raise server.failure


async def _announce(server: _DrainingServer, on_ready: Callable[[Resolved], None]) -> None:
    """Tell when the engine has loaded, or end a server whose engine never will."""
    client = server.deps.client
    try:
        resolved = await client.ready()
    except OctavoError as error:
        if client.state == "dead":
            server.failure = error
        server.should_exit = True
    else:
        on_ready(resolved)


class _DrainingServer(uvicorn.Server):
    """uvicorn, but the first signal begins a drain."""

    def __init__(self, config: uvicorn.Config, deps: Deps, drain_s: float, on_drain: Callable[[int], None]) -> None:
        super().__init__(config)
        self.deps = deps
        self.failure: OctavoError | None = None  # why there is no engine
        self._stopping = False
        self._drain_s = drain_s
        self._on_drain = on_drain
        self._draining: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def handle_exit(self, *_: object) -> None:
        """Runs between any two bytecodes of the main thread, so the work is left to the loop."""
        if self._stopping:
            self.should_exit = self.force_exit = True
        self._stopping = True
        self._loop.call_soon_threadsafe(self._begin_drain)

    def forget_drain(self) -> None:
        if self._draining is not None:
            self._draining.cancel()

    def _begin_drain(self) -> None:
        if self._draining is None:
            self.deps.draining = True
            self._on_drain(self.deps.client.unfinished)
            self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        if not await self.deps.client.drain(self._drain_s):
            await self.deps.client.close()  # each answer under way ends with an error
        self.should_exit = True


def _allow_many_connections() -> None:
    """Raise the soft limit of open files to the hard one: each client takes one, and the default is often 1024."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            with contextlib.suppress(OSError, ValueError):  # some systems name a hard limit they do not grant
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
