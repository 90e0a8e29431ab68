"""The exception tree. Every error a user can meet is one of these; its message names the thing, the limit and
what to do. How an error looks on the wire is decided in `server/errors.py`, not here.

An `assert` in this code base guards against our own bugs and is never the answer to a user's input.
"""

from __future__ import annotations


class OctavoError(Exception):
    """Root of all errors raised on purpose."""


class ConfigError(OctavoError):
    """An option, or a combination of options, that cannot work on this machine or at all."""


# --- requests -----------------------------------------------------------------------------------------------


class InvalidRequest(OctavoError):
    """The request itself is wrong; repeating it unchanged cannot succeed. `param` names the offending field."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class ContextLengthExceeded(InvalidRequest):
    """The prompt does not fit the model's context, or could never fit the KV pool.

    The message starts with "This model's maximum context length is", which client libraries match on.
    """

    def __init__(
        self,
        *,
        prompt_tokens: int,
        context_length: int,
        max_tokens: int | None = None,
        param: str | None = None,
    ) -> None:
        if max_tokens is None:
            asked = f"your prompt contains {prompt_tokens} input tokens. Shorten the prompt"
        else:
            asked = (
                f"you asked for {max_tokens} output tokens and your prompt contains {prompt_tokens} input tokens. "
                "Lower max_tokens or shorten the prompt"
            )
        super().__init__(
            f"This model's maximum context length is {context_length} tokens. However, {asked}, "
            "or serve with a larger --max-len or --kv-memory.",
            param=param,
            code="context_length_exceeded",
        )
        self.prompt_tokens = prompt_tokens
        self.context_length = context_length


class ModelNotFound(InvalidRequest):
    """The request names a model that is not the one served here."""

    def __init__(self, model: str, served: str) -> None:
        words = f"The model `{model:.200}` does not exist: this server serves `{served}`."
        super().__init__(words, param="model", code="model_not_found")
        self.model = model


class RequestTooLarge(InvalidRequest):
    """The request has more bytes than the server reads (HTTP only)."""


class QueueFull(OctavoError):
    """Too many requests wait already. Nothing is wrong with this one: try again after `retry_after_s`."""

    def __init__(self, waiting: int, limit: int, *, retry_after_s: float = 1.0) -> None:
        super().__init__(f"The queue is full: {waiting} requests wait, the limit is {limit}. Try again shortly.")
        self.retry_after_s = retry_after_s


class EngineUnavailable(OctavoError):
    """The engine is loading, restarting, draining or gone, and this request was not accepted."""


class EngineDied(OctavoError):
    """The engine died repeatedly while it worked on this request, so the request was given up."""


# --- checkpoints and the model store ------------------------------------------------------------------------


class CheckpointError(OctavoError):
    """A checkpoint that is missing, truncated or contradicts itself. The message names file and tensor."""


class UnsupportedModel(CheckpointError):
    """A sound checkpoint of a kind that Octavo does not serve (architecture, tensor type, rope kind)."""


class StoreError(OctavoError):
    """A model could not be found, fetched or placed in the store (unknown name, no network, disk full)."""


# --- the command line ---------------------------------------------------------------------------------------


class BatchFileError(OctavoError):
    """A batch cannot be read, or the file for its results is a file of another kind."""


class BenchError(OctavoError):
    """The server under test could not be started, reached, or does not speak the protocol."""
