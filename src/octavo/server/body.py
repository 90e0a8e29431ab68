"""A request body becomes a typed struct: size limit while reading, JSON, types, unknown fields. Owns the words in
which a malformed body is refused; what the values mean is the routes' affair.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from starlette.requests import Request

from octavo.config import format_bytes
from octavo.errors import InvalidRequest, RequestTooLarge
from octavo.server.fields import IGNORED, refuse_unsupported

# A client that is still sending reads the answer only afterwards, so what is too much is read and thrown away,
# within bounds, before the refusal is sent.
DISCARD_BYTES = 128 * 2**20
DISCARD_S = 10.0
MAX_REMEMBERED_FIELDS = 256

logger = logging.getLogger("octavo.server")

T = TypeVar("T", bound=msgspec.Struct)


class Received(NamedTuple, Generic[T]):
    """A decoded body and its size in bytes."""

    value: T
    size: int


class BodyReader(Generic[T]):
    """Reads bodies of one kind. `unsupported` maps fields to the values that ask for nothing (see `fields.py`)."""

    def __init__(self, kind: type[T], *, max_bytes: int, unsupported: Mapping[str, tuple[Any, ...]]) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
        self._expected = frozenset(field.encode_name for field in msgspec.structs.fields(kind))
        self._quiet = self._expected | unsupported.keys() | IGNORED
        self._unsupported = unsupported
        self._max_bytes = max_bytes
        self._logged: set[str] = set()

    async def read(self, request: Request) -> Received[T]:
        """Raises RequestTooLarge, InvalidRequest naming the field, or ClientDisconnect."""
        body = await self._read_bytes(request)
        try:
            raw = self._fields_decoder.decode(body)
            refuse_unsupported(raw, self._unsupported)
            value = self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _refusal(error) from None
        self._log_unknown(raw.keys() - self._quiet)
        return Received(value, len(body))

    async def _read_bytes(self, request: Request) -> bytes:
        declared = request.headers.get("content-length", "")
        too_large = declared.isdigit() and int(declared) > self._max_bytes
        if too_large and int(declared) > DISCARD_BYTES:
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        chunks = request.stream()
        if not too_large:
            async for chunk in chunks:
                size += len(chunk)
                if size > self._max_bytes:
                    too_large = True
                    break
                parts.append(chunk)
        if too_large:
            parts.clear()
            await _discard(chunks)
            raise self._too_large()
        return b"".join(parts)

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(
            f"The request body is larger than {format_bytes(self._max_bytes)}. Send less, or serve with a larger "
            "--max-body."
        )

    def _log_unknown(self, names: set[str]) -> None:
        for name in names - self._logged:
            if len(self._logged) < MAX_REMEMBERED_FIELDS:
                self._logged.add(name)
                logger.warning("a request has the unknown field %.80r, which is ignored (logged once)", name)


async def _discard(chunks: Any) -> None:
    size = 0
    try:
        async with asyncio.timeout(DISCARD_S):
            async for chunk in chunks:
                size += len(chunk)
                if size > DISCARD_BYTES:
                    return
    except TimeoutError:
        return


def _refusal(error: Exception) -> InvalidRequest:
    if isinstance(error, RecursionError):
        return InvalidRequest("The request body is nested too deeply.")
    if isinstance(error, msgspec.ValidationError):
        message, _, path = str(error).partition(" - at `$")
        param = path.rstrip("`").lstrip(".") or None
        if missing := re.search(r"required field `(\w+)`", message):
            param = f"{param}.{missing[1]}" if param else missing[1]
            message = "this field is required"
        return InvalidRequest(f"{param}: {message}." if param else f"{message}.", param=param)
    return InvalidRequest(f"The request body is not valid JSON in UTF-8: {error}.")
