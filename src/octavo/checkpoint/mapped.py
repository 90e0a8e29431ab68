"""One file mapped read-only into memory. Owns opening, size and unmapping; knows nothing of what the file holds.

Without numpy, so that the server front end may use it.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from octavo.errors import CheckpointError

KEPT_BYTES = 16 << 20  # of what was viewed last; a loaded model would else stay in this process twice until the end


class MappedFile:
    """The bytes of `path`. Pages are read when touched and can be dropped by the system at any time."""

    def __init__(self, path: Path) -> None:
        """CheckpointError when the file is missing, empty, no plain file or unreadable."""
        self.path = path
        try:
            if path.exists() and not path.is_file():  # opening a pipe, for one, would wait for ever
                raise CheckpointError(f"{path}: not a file")
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise CheckpointError(f"{path}: no such file") from None
        except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
            raise CheckpointError(f"{path}: cannot be read: {error}") from error
        self.size = len(self._map)
        self._viewed = 0  # bytes since pages were last let go

    @property
    def bytes(self) -> mmap.mmap:
        """The whole file; slices of it are copies."""
        return self._map

    def view(self, start: int, length: int) -> memoryview:
        """`length` bytes from `start` on, without a copy. Lets pages that earlier views have read go now and then; they
        are the system's to keep, and come back when touched."""
        if self._viewed > KEPT_BYTES and hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            self._map.madvise(mmap.MADV_DONTNEED)
            self._viewed = 0
        self._viewed += length
        return memoryview(self._map)[start : start + length]

    def close(self) -> None:
        """Unmap. While views are alive the mapping stays, and goes with the last of them."""
        try:
            self._map.close()
        except BufferError:
            del self._map
