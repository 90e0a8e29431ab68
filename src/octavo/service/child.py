"""The engine child: takes messages, steps the engine, sends what each step brought. Started by `process.py`.

Two threads. The main thread owns the engine and the outgoing end of the pipe. The mail thread moves frames from the
incoming end into a queue and ends the process at the end of the pipe: the child is gone as soon as its
parent is, even in the middle of a long step. It sleeps in read() and touches nothing else.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import NoReturn

import msgspec

from octavo.core.engine import Engine
from octavo.errors import EngineDied, InvalidRequest, OctavoError, QueueFull
from octavo.service.error_info import describe
from octavo.service.frames import read_frames, write_frame
from octavo.service.messages import Abort, Fatal, FromEngine, Outputs, Progress, Ready, Start, Submit
from octavo.types import FinishReason, Output, Request, Usage

_PROGRESS_EVERY_S = 0.1
# Cyclic garbage is collected when idle; under endless load, rarely enough not to be felt.
_STEPS_PER_COLLECTION = 20_000

Send = Callable[[FromEngine], None]
Mail = SimpleQueue[bytes]


def main() -> NoReturn:
    """Serve the parent at the other end of standard input and output until that end closes. Modules named as arguments
    are imported meanwhile."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the front end decides what Ctrl-C means
    faulthandler.enable()  # a crash in native code shows where it happened
    incoming, outgoing = _take_pipe()
    mail: Mail = SimpleQueue()
    threading.Thread(target=_collect_mail, args=(incoming, mail), name="mail", daemon=True).start()

    for module in sys.argv[1:]:
        with contextlib.suppress(Exception):  # _build meets it again, and tells
            importlib.import_module(module)

    def send(message: FromEngine) -> None:
        try:
            write_frame(outgoing, msgspec.msgpack.encode(message))
        except BrokenPipeError:
            os._exit(0)

    try:
        engine = _build(msgspec.msgpack.decode(mail.get(), type=Start), send)
        if engine is not None:
            _serve(engine, mail, send)
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # at once: nothing of a broken engine is worth tidying up, and the front end starts another
    os._exit(0)


def _take_pipe() -> tuple[int, int]:
    """Keep standard input and output for messages; whatever prints from now on prints to standard error."""
    incoming, outgoing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return incoming, outgoing


def _collect_mail(incoming: int, mail: Mail) -> None:
    try:
        for frame in read_frames(incoming):
            mail.put(frame)
    finally:
        os._exit(0)


def _build(start: Start, send: Send) -> Engine | None:
    """Load the engine and say so. None, after a Fatal message, when it cannot be loaded."""
    began = time.perf_counter()
    try:
        module, _, function = start.factory.partition(":")
        build = getattr(importlib.import_module(module), function)
        engine: Engine
        engine, resolved = build(start.payload, _reporter(send))
    except OctavoError as error:
        send(Fatal(describe(error)))
        return None
    except Exception as error:
        traceback.print_exc()
        send(Fatal(describe(EngineDied(f"the engine failed while loading: {type(error).__name__}: {error}"))))
        return None
    gc.collect()
    gc.freeze()  # what is loaded stays; collections need not look at it again
    gc.disable()
    send(Ready(resolved, time.perf_counter() - began))
    return engine


def _reporter(send: Send) -> Callable[[str, int, int], None]:
    """Progress messages, at most one in _PROGRESS_EVERY_S but for the first and the last of a label."""
    last_label = ""
    next_s = 0.0

    def report(label: str, done: int, total: int) -> None:
        nonlocal last_label, next_s
        now = time.monotonic()
        if label == last_label and done < total and now < next_s:
            return
        last_label, next_s = label, now + _PROGRESS_EVERY_S
        send(Progress(label, done, total))

    return report


def _serve(engine: Engine, mail: Mail, send: Send) -> NoReturn:
    """Look for mail between steps; when idle, sleep until some comes. Every turn ends with a message, so the last
    one before a sleep tells that nothing is running."""
    decode = msgspec.msgpack.Decoder(Submit | Abort).decode
    steps = 0
    while True:
        steps += 1
        if engine.idle or steps >= _STEPS_PER_COLLECTION:
            gc.collect()
            steps = 0
        frames = [mail.get()] if engine.idle else []
        while not mail.empty():
            frames.append(mail.get())
        send(turn(engine, map(decode, frames)))


def turn(engine: Engine, mail: Iterable[Submit | Abort]) -> Outputs:
    """Pass on the mail, take one step, and tell what came of it."""
    outputs = [final for message in mail for final in _take(engine, message)]
    outputs += engine.step()  # even if idle again: the final events of aborted requests come with a step
    return Outputs(outputs, engine.stats())


def _take(engine: Engine, message: Submit | Abort) -> list[Output]:
    """Pass one message to the engine. Returns the final events of a request that it refuses."""
    if isinstance(message, Abort):
        engine.abort(message.request_id, message.choice)
        return []
    try:
        engine.add(message.request, accepted=message.accepted)
    except (InvalidRequest, QueueFull) as error:
        return _refusal(message.request, error)
    return []


def _refusal(request: Request, error: OctavoError) -> list[Output]:
    usage = Usage(len(request.prompt), len(request.generated), 0)
    return [
        Output(request.id, request.choice + i, [], finish=FinishReason.ERROR, usage=usage, error=describe(error))
        for i in range(request.params.n)
    ]


if __name__ == "__main__":
    main()
