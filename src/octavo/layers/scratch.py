"""Scratch: named activation buffers, shared by all layers of a model and kept at one address from step to step (what
a captured step needs). Owns their sizes and lifetime; what is in them between two ops is the layers' business.
"""

from __future__ import annotations

from octavo.ops.backend import Array, Backend


class Scratch:
    """Layers `reserve` while they are built, the model calls `allocate` once, steps take `rows`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._shapes: dict[str, tuple[int, int]] = {}
        self._buffers: dict[str, Array] = {}

    def reserve(self, name: str, rows: int, width: int) -> None:
        """A buffer `name` of at least rows x width. Layers that are never active together share by name."""
        known = self._shapes.setdefault(name, (rows, width))
        assert known == (rows, width), f"buffer {name} has two shapes: {known} and {(rows, width)}"
        assert not self._buffers, "buffers are allocated already"

    def allocate(self) -> None:
        """Allocate everything reserved, in the backend's activation dtype, uninitialised."""
        self._buffers = {name: self._backend.empty(shape) for name, shape in self._shapes.items()}

    def rows(self, name: str, count: int) -> Array:
        """The first `count` rows of a buffer, as a view."""
        assert count <= self._shapes[name][0], f"{count} rows asked of buffer {name}{self._shapes[name]}"
        return self._backend.rows(self._buffers[name], count)
