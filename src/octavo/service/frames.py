"""Frames on a byte pipe: four bytes of length, little-endian, then the message. Knows nothing of messages.

Works on plain file descriptors, without buffers or locks, so that a thread which sleeps in a read can be left
behind when the process ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

_HEADER_BYTES = 4
_READ_BYTES = 1 << 16


def write_frame(fd: int, message: bytes) -> None:
    """Write one frame whole; blocks while the pipe is full. BrokenPipeError when nobody reads any more."""
    rest = memoryview(len(message).to_bytes(_HEADER_BYTES, "little") + message)
    while rest:
        rest = rest[os.write(fd, rest) :]


def read_frames(fd: int) -> Iterator[bytes]:
    """Every whole frame until the end of the file. A frame that its writer did not live to finish is dropped."""
    buffer = bytearray()
    while chunk := os.read(fd, _READ_BYTES):
        buffer += chunk
        start = 0
        while (end := _frame_end(buffer, start)) <= len(buffer):
            yield bytes(buffer[start + _HEADER_BYTES : end])
            start = end
        del buffer[:start]


def _frame_end(buffer: bytearray, start: int) -> int:
    """Where the frame at `start` ends; beyond the buffer while its length has not arrived."""
    body = start + _HEADER_BYTES
    if body > len(buffer):
        return body
    return body + int.from_bytes(buffer[start:body], "little")
