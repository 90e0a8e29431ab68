"""Run the application under uvicorn: the listening socket, signals, draining, and the end. Prints nothing: what the
user should know goes to callbacks.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import sys
from collections.abc import Callable
from functools import partial

import uvicorn

from octavo.config import Resolved
from octavo.errors import ConfigError, OctavoError
from octavo.server.app import create_app
from octavo.server.deps import Deps

BACKLOG = 2048
# After the drain, what still hangs is a client that does not read its last bytes.
LAST_BYTES_S = 2


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 lets the system choose. Do this before loading anything.

    Raises ConfigError, naming host and port and what to do, when the address cannot be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:  # UnicodeError: what can be no name
        raise ConfigError(f"--host {host} is no address of this machine: {error}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(_why_not(error, host, port)) from error
    return listener


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


def _why_not(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use: stop the program that uses it, or choose another with --port"
    if error.errno == errno.EACCES:
        return f"port {port} may not be used by this user: choose one above 1023 with --port"
    return f"cannot listen on {host}, port {port}: {error.strerror}"


def _allow_many_connections() -> None:
    """Raise the soft limit of open files to the hard one: each client takes one, and the default is often 1024."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            with contextlib.suppress(OSError, ValueError):  # some systems name a hard limit they do not grant
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
