"""EngineClient: the front end's view of the engine. Submits requests, hands out streams, and when the engine dies
starts another that goes on where it stopped. Processes are `process.py`'s, a request's bookkeeping `flight.py`'s.

Ownership: everything in this file happens in the event loop's thread. Nothing here blocks.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import msgspec

from octavo.config import Resolved
from octavo.core.engine import Stats
from octavo.errors import EngineDied, EngineUnavailable, InvalidRequest, OctavoError, QueueFull
from octavo.service.blame import given_up, may_have_caused, sendable
from octavo.service.early import EarlyEngine
from octavo.service.error_info import describe, revive
from octavo.service.flight import Flight
from octavo.service.messages import Abort, Fatal, FromEngine, Outputs, Progress, Ready, Start, Submit
from octavo.service.patience import Patience
from octavo.service.process import EngineProcess
from octavo.service.stream import Stream
from octavo.service.totals import Totals
from octavo.types import ErrorInfo, FinishReason, Output, Request

State = Literal["loading", "ready", "restarting", "dead", "closed"]

_log = logging.getLogger(__name__)


class EngineClient:
    """`factory` ("module:function") builds the engine from `payload` (builtins only) in a process of its own; it takes
    (payload, progress) and returns (Engine, Resolved). `on_progress(label, done, total)` hears how loading goes.
    `queue` bounds the requests that wait for an engine that loads; once loaded, its own limit holds. `early` is a
    process for the first engine, spawned before; it begins to load at once.

    Every request that submit() takes ends with exactly one final Output per choice, whatever happens.
    """

    def __init__(
        self,
        factory: str,
        payload: dict[str, Any],
        *,
        on_progress: Callable[[str, int, int], None] | None = None,
        queue: int = 1024,
        early: EarlyEngine | None = None,
    ) -> None:
        self.resolved: Resolved | None = None
        self.load_s: float | None = None
        self.restarts = 0
        self._start = Start(factory, payload)
        self._on_progress = on_progress
        self._queue = queue
        self._early = early
        if early is not None:
            early.order(self._start)
        self._state: State = "loading"
        self._failure: OctavoError | None = None  # why the state is dead
        self._draining = False
        self._process: EngineProcess | None = None
        self._patience = Patience()
        self._totals = Totals()
        self._serials = itertools.count(1)
        self._streams: dict[Flight, Stream] = {}  # every unfinished request, in order of arrival
        self._unsent: dict[Flight, None] = {}  # those that no engine works on
        self._by_engine_id: dict[str, Flight] = {}  # those that one works on
        self._settled = asyncio.Event()  # neither loading nor restarting
        self._empty = asyncio.Event()  # no unfinished request
        self._empty.set()
        self._closing: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        return self._state

    @property
    def stats(self) -> Stats:
        """The engine's state after its latest step, and what waits for an engine. Totals count all engines."""
        stats = self._totals.sum()
        stats.waiting += len(self._unsent)
        return stats

    @property
    def unfinished(self) -> int:
        """Accepted requests without all their final Outputs."""
        return len(self._streams)

    @property
    def pid(self) -> int | None:
        """The engine process, None before start()."""
        return None if self._process is None else self._process.pid

    # --- life ---

    async def start(self) -> None:
        """Spawn the engine; ready() tells when it is loaded. EngineUnavailable if no process can be started."""
        assert self._process is None, "an engine client is started once"
        assert self._closing is None, "an engine client is not started after close()"
        self._spawn()

    async def ready(self) -> Resolved:
        """Wait until the engine takes requests. Raises the typed error when it could not be loaded (ConfigError,
        CheckpointError, ...), EngineDied when it died too often, EngineUnavailable after close()."""
        while self._state in ("loading", "restarting"):
            await self._settled.wait()
        if self._state == "ready":
            assert self.resolved is not None
            return self.resolved
        raise self._failure or EngineUnavailable("the engine is shut down")

    async def drain(self, timeout_s: float) -> bool:
        """Take no more requests and wait for those taken. False when some are still unfinished after `timeout_s`."""
        self._draining = True
        try:
            await asyncio.wait_for(self._empty.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End what is unfinished with an error and the engine with it. Returns when the process is gone.
        May be called in any state and any number of times."""
        if self._closing is None:
            self._change("closed")
            self._end_all(describe(EngineUnavailable("the server shut down before the answer was complete")))
            self._closing = asyncio.create_task(self._stop_process())
        await asyncio.shield(self._closing)

    async def _stop_process(self) -> None:
        if self._process is not None:
            await self._process.stop()

    # --- requests ---

    def submit(self, request: Request, arrived: asyncio.Event | None = None) -> Stream:
        """Pass a request to the engine, or keep it until there is one. The engine's own refusals (InvalidRequest,
        QueueFull) come as final Outputs with `error`. `arrived` is the stream's event, for a consumer of several.

        EngineUnavailable when draining, dead or closed; QueueFull when too many wait for an engine that loads;
        InvalidRequest for numbers or strings that cannot be sent.
        """
        if self._draining or self._state in ("dead", "closed"):
            raise EngineUnavailable("the server is shutting down or its engine is gone: no new requests are taken")
        if self._state != "ready" and len(self._unsent) >= self._queue:
            raise QueueFull(len(self._unsent), self._queue)
        try:
            msgspec.msgpack.encode(request)
        except (OverflowError, ValueError) as error:  # beyond 64 bits, or no valid Unicode
            raise InvalidRequest(f"the request holds a value that cannot be passed on: {error}") from error
        flight = Flight(request)
        stream = self._streams[flight] = Stream(request, partial(self._abort, flight), arrived)
        self._empty.clear()
        if self._state == "ready":
            self._send(flight, accepted=False)
        else:
            self._unsent[flight] = None
        return stream

    def _send(self, flight: Flight, *, accepted: bool) -> None:
        assert self._process is not None
        for request in flight.submissions(self._serials):
            self._by_engine_id[request.id] = flight
            self._process.post(Submit(request, accepted))

    def _send_unsent(self) -> None:
        for flight in sendable(self._unsent, self._by_engine_id.values()):
            del self._unsent[flight]
            self._send(flight, accepted=True)

    def _abort(self, flight: Flight, index: int | None) -> None:
        for choice in list(flight.open.values()):
            if index is not None and choice.index != index:
                continue
            if not flight.engine_ids:
                self._deliver(flight, flight.finish(choice, FinishReason.ABORT))
            elif not choice.aborting:
                assert self._process is not None
                choice.aborting = True
                self._process.post(Abort(choice.engine_id, choice.index))

    def _deliver(self, flight: Flight, output: Output) -> None:
        self._streams[flight].push(output)
        if not flight.open:
            del self._streams[flight]
            self._unsent.pop(flight, None)
            for engine_id in flight.engine_ids:
                del self._by_engine_id[engine_id]
            if not self._streams:
                self._empty.set()

    def _end_all(self, error: ErrorInfo) -> None:
        for flight in list(self._streams):
            self._end(flight, error)

    def _end(self, flight: Flight, error: ErrorInfo) -> None:
        for choice in list(flight.open.values()):
            self._deliver(flight, flight.finish(choice, FinishReason.ERROR, error))

    # --- the engine's messages and its death ---

    def _on_message(self, message: FromEngine) -> None:
        if self._state in ("dead", "closed"):
            return
        match message:
            case Outputs():
                self._take_outputs(message)
            case Progress():
                if self._on_progress is not None:
                    self._on_progress(message.label, message.done, message.total)
            case Ready():
                self.resolved = message.resolved
                self.load_s = message.load_s
                self._queue = message.resolved.queue
                self._change("ready")
                self._send_unsent()
            case Fatal():
                self._die(revive(message.error))

    def _take_outputs(self, message: Outputs) -> None:
        self._totals.present = message.stats
        for output in message.outputs:
            flight = self._by_engine_id[output.request_id]
            if output.tokens:
                self._patience.token()
            flight.deliver(output)
            self._deliver(flight, output)
        if self._unsent:
            self._send_unsent()

    def _on_exit(self, returncode: int) -> None:
        if self._state in ("dead", "closed"):
            return
        self._totals.engine_died()
        self._bereave(list(dict.fromkeys(self._by_engine_id.values())))
        end = f"killed by signal {-returncode}" if returncode < 0 else f"exit status {returncode}"
        if not self._patience.death(loaded=self._state == "ready"):
            self._die(EngineDied(f"the engine died again and again, at last by {end}; its own words are in the log"))
            return
        _log.warning("The engine died (%s). Starting another; unfinished requests go on: %d.", end, len(self._streams))
        self.restarts += 1
        self._change("loading" if self.resolved is None else "restarting")
        try:
            self._spawn()
        except EngineUnavailable as error:
            self._die(error)

    def _bereave(self, sent: list[Flight]) -> None:
        """An engine died that had these requests, in this order. End those that nobody wants any more or that may
        have killed too many; the others wait for the next engine."""
        self._by_engine_id.clear()
        if sent:
            assert self.resolved is not None
            for flight in may_have_caused(sent, self.resolved.rows):
                flight.deaths += 1
        for flight in sent:
            flight.engine_ids = []
            for choice in list(flight.open.values()):
                if choice.aborting:
                    self._deliver(flight, flight.finish(choice, FinishReason.ABORT))
            if given_up(flight):
                words = f"the engine died {flight.deaths} times while it worked on this request, which is given up"
                self._end(flight, describe(EngineDied(words)))
        self._unsent = dict.fromkeys(self._streams)

    def _die(self, error: OctavoError) -> None:
        if self.resolved is not None:  # before it has loaded, `ready` tells
            _log.error("The engine is gone: %s", error)
        self._failure = error
        self._change("dead")
        self._end_all(describe(EngineUnavailable(f"the engine is gone: {error}")))

    def _spawn(self) -> None:
        child = None if self._early is None else self._early.take()
        self._process = EngineProcess(self._start, self._on_message, self._on_exit, child)

    def _change(self, state: State) -> None:
        self._state = state
        if state in ("loading", "restarting"):
            self._settled.clear()
        else:
            self._settled.set()
