"""Errors across the engine pipe: an exception as plain words on one side, the same kind of exception on the other."""

from __future__ import annotations

from octavo import errors
from octavo.errors import EngineUnavailable, InvalidRequest, OctavoError, QueueFull
from octavo.types import ErrorInfo


def describe(error: OctavoError) -> ErrorInfo:
    """The error as it travels: its class, its words and, for a bad request, the field at fault."""
    if isinstance(error, InvalidRequest):
        return ErrorInfo(type(error).__name__, str(error), error.param, error.code)
    return ErrorInfo(type(error).__name__, str(error))


def revive(info: ErrorInfo) -> OctavoError:
    """An exception of the class that `info` names (EngineUnavailable for an unknown one), with the same words.

    Numbers that only the constructor takes, such as `prompt_tokens` of ContextLengthExceeded, stay behind: the
    message tells them. QueueFull has its usual `retry_after_s`.
    """
    kind = getattr(errors, info.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, OctavoError)):
        kind = EngineUnavailable
    error = kind.__new__(kind)
    Exception.__init__(error, info.message)
    if isinstance(error, InvalidRequest):
        InvalidRequest.__init__(error, info.message, param=info.param, code=info.code)
    elif isinstance(error, QueueFull):
        error.retry_after_s = 1.0
    return error
