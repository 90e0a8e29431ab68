"""EngineProcess: one engine child from start to end. Knows processes, pipes and threads; nothing of requests.

Ownership. The event loop's thread calls every method and gets every callback. The reader thread owns the pipe
from the child, and reaps the child when that pipe ends; each message reaches the loop by one call_soon_threadsafe,
the end as the last of them. The writer thread owns the pipe to the child, so that a full pipe holds up nobody else.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

import msgspec

from octavo.errors import EngineUnavailable
from octavo.service.frames import read_frames, write_frame
from octavo.service.messages import FromEngine, Start, ToEngine

# How long a child gets to leave after the pipe has closed, and again after it was asked to terminate.
_LEAVE_S = 2.0

T = TypeVar("T")


class EngineProcess:
    """Spawns on construction, unless it is given a `child` (see `spawn`) that has its `start` already;
    EngineUnavailable if the operating system refuses.

    `on_message(message)` for each message, then `on_exit(returncode)` once; never during a call.
    """

    def __init__(
        self,
        start: Start,
        on_message: Callable[[FromEngine], None],
        on_exit: Callable[[int], None],
        child: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._on_exit = on_exit
        self._exited = asyncio.Event()
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._child = child or spawn(start.factory)
        self._threads = [
            threading.Thread(target=self._read, name="engine-reader", daemon=True),
            threading.Thread(target=self._write, name="engine-writer", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        if child is None:
            self.post(start)

    @property
    def pid(self) -> int:
        return self._child.pid

    def post(self, message: ToEngine) -> None:
        """Send a message when the pipe takes it. Messages to a child that has died are lost."""
        self._outbox.put(msgspec.msgpack.encode(message))

    async def stop(self) -> None:
        """Close the pipe, which ends the child; insist if it does not. Returns when it is gone and reaped."""
        self._outbox.put(None)
        for insist in (self._child.terminate, self._child.kill):
            try:
                await asyncio.wait_for(self._exited.wait(), _LEAVE_S)
                break
            except TimeoutError:
                insist()
        await self._exited.wait()
        for thread in self._threads:  # both are past their last blocking call
            thread.join()

    def _write(self) -> None:
        assert self._child.stdin is not None
        with self._child.stdin as pipe:
            try:
                while (frame := self._outbox.get()) is not None:
                    write_frame(pipe.fileno(), frame)
            except BrokenPipeError:
                pass  # the reader sees the same end, and tells

    def _read(self) -> None:
        assert self._child.stdout is not None
        decode = msgspec.msgpack.Decoder(FromEngine).decode
        with self._child.stdout as pipe:
            for frame in read_frames(pipe.fileno()):
                if not self._tell(self._on_message, decode(frame)):
                    self._outbox.put(None)  # the loop has ended without stop(): end the child as well
        returncode = self._child.wait()
        self._outbox.put(None)
        self._tell(self._finish, returncode)

    def _finish(self, returncode: int) -> None:
        self._exited.set()
        self._on_exit(returncode)

    def _tell(self, callback: Callable[[T], None], what: T) -> bool:
        """Have the loop call back. False when the loop is closed and nobody is left to be told."""
        try:
            self._loop.call_soon_threadsafe(callback, what)
        except RuntimeError:
            return False
        return True


def spawn(factory: str) -> subprocess.Popen[bytes]:
    """A fresh interpreter that imports from where this one does, and the module of `factory` before it is told to; see
    docs/decisions/008 for why it is not multiprocessing's.

    It inherits standard error and no other descriptor. Its own session keeps the terminal's Ctrl-C away from it.
    """
    import_path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "octavo.service.child", factory.partition(":")[0]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": import_path},
            start_new_session=True,
        )
    except OSError as error:
        raise EngineUnavailable(f"the engine process could not be started: {error}") from error
