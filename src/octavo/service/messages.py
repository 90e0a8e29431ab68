"""What travels over the engine pipe, as msgpack. The end of the pipe is a message too: the other side is gone."""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.config import Resolved
from octavo.core.engine import Stats
from octavo.types import ErrorInfo, Output, Request


class Start(msgspec.Struct, tag=True, array_like=True):
    """The first message to a child: `factory` ("module:function") builds the engine from `payload` (builtins)."""

    factory: str
    payload: dict[str, Any]


class Submit(msgspec.Struct, tag=True, array_like=True):
    """`accepted`: the front end took this request before this engine was there, so its queue must take it too."""

    request: Request
    accepted: bool = False


class Abort(msgspec.Struct, tag=True, array_like=True):
    """End a request, or one choice of it. Unknown ids are no error: the end may have crossed on the way."""

    request_id: str
    choice: int | None = None


class Progress(msgspec.Struct, tag=True, array_like=True):
    """Loading goes on: `done` of `total` bytes of `label`."""

    label: str
    done: int
    total: int


class Ready(msgspec.Struct, tag=True, array_like=True):
    """The engine is loaded and takes requests."""

    resolved: Resolved
    load_s: float


class Outputs(msgspec.Struct, tag=True, array_like=True):
    """Everything that one step brought, and the engine's state after it. One message per step."""

    outputs: list[Output]
    stats: Stats


class Fatal(msgspec.Struct, tag=True, array_like=True):
    """The engine could not start, for a reason that a restart would not mend."""

    error: ErrorInfo


ToEngine = Start | Submit | Abort
FromEngine = Progress | Ready | Outputs | Fatal
