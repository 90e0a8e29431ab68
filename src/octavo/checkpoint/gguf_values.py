"""The typed values of a GGUF header: numbers, strings, arrays. Every length is checked against what is left of
the file before anything of that length is made. Knows nothing of the header's order; see `gguf_file.py`.
"""

from __future__ import annotations

import struct
from typing import Any

from octavo.checkpoint.mapped import MappedFile
from octavo.errors import CheckpointError

# GGUF value type -> struct code. 8 is a string, 9 an array.
NUMBER_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
STRUCTS = {code: struct.Struct("<" + code) for code in NUMBER_CODES.values()}

MAX_STRING_BYTES = 64 << 20  # chat templates are the longest real ones, some 20 kB
MAX_ARRAY_ITEMS = 1 << 24  # the largest real vocabularies have 2^18 tokens
MAX_ARRAY_DEPTH = 4
MIN_ARRAY_BYTES = 4 + 8  # an empty array: item type and count


class HeaderCursor:
    """A position in a mapped file from which values are read in order. All faults are CheckpointError."""

    def __init__(self, file: MappedFile) -> None:
        self.path = file.path
        self.size = file.size
        self.position = 0
        self._bytes = file.bytes

    def fault(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: {what}")

    def number(self, code: str, what: str) -> Any:
        """One number of the struct code `code`."""
        packed = STRUCTS[code]
        self._need(packed.size, what)
        (value,) = packed.unpack_from(self._bytes, self.position)
        self.position += packed.size
        return value

    def count(self, what: str, item_bytes: int) -> int:
        """A 64-bit count of items that take at least `item_bytes` each of the rest of the file."""
        value: int = self.number("Q", what)
        self.check_count(what, value, item_bytes)
        return value

    def check_count(self, what: str, value: int, item_bytes: int) -> None:
        if value * item_bytes > self.size - self.position:
            raise self.fault(f"{what} of {value} cannot fit the {self.size - self.position} bytes left: truncated?")

    def string(self, what: str) -> str:
        return self._strings(1, what)[0]

    def value(self, key: str) -> Any:
        """A type number and a value of that type, as metadata `key` holds it."""
        return self._typed(self.number("I", f"type of metadata {key!r}"), f"metadata {key!r}", depth=0)

    def _typed(self, kind: int, what: str, depth: int) -> Any:
        if kind == STRING:
            return self.string(what)
        if kind == ARRAY:
            return self._array(what, depth)
        if kind in NUMBER_CODES:
            return self.number(NUMBER_CODES[kind], what)
        raise self.fault(f"{what} has the unknown value type {kind}")

    def _array(self, what: str, depth: int) -> list[Any]:
        if depth == MAX_ARRAY_DEPTH:
            raise self.fault(f"{what}: arrays nested deeper than {MAX_ARRAY_DEPTH}")
        kind = self.number("I", f"item type of {what}")
        count = self.number("Q", f"length of {what}")
        if count > MAX_ARRAY_ITEMS:
            raise self.fault(f"{what} has {count} items, the limit is {MAX_ARRAY_ITEMS}")
        if kind == STRING:
            return self._strings(count, what)
        if kind == ARRAY:
            self.check_count(f"length of {what}", count, MIN_ARRAY_BYTES)
            return [self._array(what, depth + 1) for _ in range(count)]
        if kind not in NUMBER_CODES:
            raise self.fault(f"{what} has the unknown item type {kind}")
        packed = struct.Struct(f"<{count}{NUMBER_CODES[kind]}")
        self._need(packed.size, what)
        values = list(packed.unpack_from(self._bytes, self.position))
        self.position += packed.size
        return values

    def _strings(self, count: int, what: str) -> list[str]:
        """`count` strings, each an 8-byte length and UTF-8. The loop is the hot part of opening a vocabulary."""
        self.check_count(f"length of {what}", count, 8)
        data, position, size = self._bytes, self.position, self.size
        unpack = STRUCTS["Q"].unpack_from
        strings = []
        for _ in range(count):
            start = position + 8
            length = unpack(data, position)[0] if start <= size else size
            position = start + length
            if position > size or length > MAX_STRING_BYTES:
                raise self.fault(f"{what}: a string of {length} bytes at byte {start} goes beyond the file or limit")
            try:
                strings.append(data[start:position].decode())
            except UnicodeDecodeError as error:
                raise self.fault(f"{what}: the string at byte {start} is not UTF-8: {error.reason}") from None
        self.position = position
        return strings

    def _need(self, length: int, what: str) -> None:
        if length > self.size - self.position:
            raise self.fault(f"ends at byte {self.size} inside {what}: the file is truncated, fetch it again")
