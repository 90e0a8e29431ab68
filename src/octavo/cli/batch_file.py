"""The two files of `octavo run`, in OpenAI's batch format: requests to read, results to add to. Owns what makes a line
valid and which lines an interrupted run has answered already; answering is `run.py`'s.

Format: OpenAI API reference, "Batch", request input and output objects.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from octavo.errors import BatchFileError, InvalidRequest

URLS = ("/v1/chat/completions", "/v1/completions")
ID_PREFIX = "batch_req_"


class BatchLine(msgspec.Struct, frozen=True):
    """One request. `body` is kept as it was written."""

    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


class BatchResponse(msgspec.Struct, frozen=True):
    status_code: int
    request_id: str
    body: Any


class BatchError(msgspec.Struct, frozen=True):
    """Why a line has no response. The message begins with the line's number, which makes it unique in its file."""

    code: str
    message: str


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """One line of output: a response, whatever its status, or an error."""

    id: str
    custom_id: str | None
    response: BatchResponse | None
    error: BatchError | None

    @classmethod
    def of(cls, custom_id: str | None, outcome: BatchResponse | BatchError) -> BatchResult:
        id_ = ID_PREFIX + uuid.uuid4().hex
        if isinstance(outcome, BatchError):
            return cls(id=id_, custom_id=custom_id, response=None, error=outcome)
        return cls(id=id_, custom_id=custom_id, response=outcome, error=None)

    @property
    def failed(self) -> bool:
        return self.response is None or self.response.status_code >= 300


@dataclass(slots=True)
class Answered:
    """What an output file holds already: requests by custom_id, and refused lines by the words of their refusal."""

    custom_ids: set[str] = field(default_factory=set)
    refusals: set[str] = field(default_factory=set)

    def add(self, result: BatchResult) -> None:
        if result.error is not None:
            self.refusals.add(result.error.message)
        elif result.custom_id is not None:
            self.custom_ids.add(result.custom_id)


def read_requests(path: Path, answered: Answered) -> Iterator[BatchLine | BatchResult]:
    """The lines that are still to be answered: requests, and for lines that are none the error result to write.

    BatchFileError when the file cannot be read.
    """
    seen: dict[str, int] = {}
    for number, line in _numbered_lines(path):
        try:
            request = _parse(line)
            if request.custom_id in seen:
                raise InvalidRequest(f"custom_id {request.custom_id!r} is that of line {seen[request.custom_id]}")
        except InvalidRequest as error:
            message = f"line {number}: {error.message}"
            if message not in answered.refusals:
                yield BatchResult.of(_custom_id(line), BatchError("invalid_line", message))
            continue
        seen[request.custom_id] = number
        if request.custom_id not in answered.custom_ids:
            yield request


def count_lines(path: Path) -> int:
    """The number of lines that are not blank."""
    return sum(1 for _ in _numbered_lines(path))


class ResultFile:
    """Appends results, each written through at once. Opening finds what is `answered` and cuts off a line that an
    interrupted run left torn. BatchFileError, before anything is changed, for a file of another kind."""

    def __init__(self, path: Path) -> None:
        self.answered = Answered()
        self._path = path
        _require_plain(path)
        try:
            self._file = path.open("a+b")
            self._file.seek(0)
            whole = self._read_results(path)
            self._file.truncate(whole)
        except OSError as error:
            raise BatchFileError(f"{path}: cannot be written: {error.strerror}") from error

    def write(self, result: BatchResult) -> None:
        """BatchFileError when the disk does not take it."""
        try:
            self._file.write(msgspec.json.encode(result) + b"\n")
            self._file.flush()
        except OSError as error:
            raise BatchFileError(f"{self._path}: cannot be written: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(OSError):  # what is not written yet has been told by write()
            self._file.close()

    def _read_results(self, path: Path) -> int:
        """Fill `answered`; returns the number of bytes in whole lines."""
        whole = 0
        decoder = msgspec.json.Decoder(BatchResult)
        for number, line in enumerate(self._file, 1):
            beginning = b'{"id":"' + ID_PREFIX.encode()
            ours = line.startswith(beginning) or beginning.startswith(line)
            if ours and not line.endswith(b"\n"):
                return whole
            try:
                result = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise BatchFileError(
                    f"{path}, line {number}: not a result of a batch, so nothing is added to this file; choose another"
                ) from None
            self.answered.add(result)
            whole += len(line)
        return whole


def _require_plain(path: Path) -> None:
    """BatchFileError for a pipe, a device or a directory: both files are read more than once, and need an end."""
    if path.exists() and not path.is_file():
        raise BatchFileError(f"{path}: no plain file, which a batch needs because it is read again when it is resumed")


def _numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    _require_plain(path)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except OSError as error:
        raise BatchFileError(f"{path}: cannot be read: {error.strerror}") from error


def _parse(line: bytes) -> BatchLine:
    """InvalidRequest when the line is no request that can be answered."""
    try:
        request = msgspec.json.decode(line, type=BatchLine)
        body = msgspec.json.decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"not a batch request: {error}") from None
    if request.method != "POST":
        raise InvalidRequest(f"method must be POST, got {request.method!r:.60}")
    if request.url not in URLS:
        raise InvalidRequest(f"url must be one of {', '.join(URLS)}, got {request.url!r:.60}")
    if isinstance(body, dict) and body.get("stream"):
        raise InvalidRequest("stream has no meaning in a batch; leave it out")
    return request


def _custom_id(line: bytes) -> str | None:
    """The custom_id of a refused line, where there is one to find."""
    try:
        found = msgspec.json.decode(line).get("custom_id")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, AttributeError):
        return None
    return found if isinstance(found, str) else None
