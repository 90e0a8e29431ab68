"""Loader: layers pull their tensors through it by name, in the order and shape in which they declare them. It checks,
packs, counts progress, and at the end tells all that was missing, misshapen or left over in one error.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from octavo.checkpoint.source import WeightSource
from octavo.errors import CheckpointError
from octavo.layers.linear import Linear, RMSNorm
from octavo.ops.backend import Backend, Weight
from octavo.quant.raw import RawWeight

Progress = Callable[[int, int], None]  # bytes done, bytes in all

_LISTED = 12  # names spelled out per kind of fault


@dataclass(slots=True)
class _Ledger:
    """What all scopes of one load share."""

    consumed: set[str] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)
    misshapen: list[str] = field(default_factory=list)
    bytes_done: int = 0

    @property
    def sound(self) -> bool:
        return not self.missing and not self.misshapen


class Loader:
    """Pull loading from `source` into `backend`. `scope` narrows the names; all scopes report to one `finish`.

    After the first fault nothing more is packed (the pulls return None instead of a weight), so that `finish` comes
    soon and names every fault. `progress` is called after each tensor.
    """

    def __init__(
        self,
        source: WeightSource,
        backend: Backend,
        progress: Progress | None = None,
        *,
        prefix: str = "",
        ledger: _Ledger | None = None,
    ) -> None:
        self.backend = backend
        self._source = source
        self._progress = progress
        self._prefix = prefix
        self._ledger = ledger or _Ledger()

    def scope(self, name: str) -> Loader:
        """A loader for which `name` is prepended to all tensor names."""
        return Loader(self._source, self.backend, self._progress, prefix=f"{self._prefix}{name}.", ledger=self._ledger)

    def has(self, name: str) -> bool:
        return self._prefix + name in self._source.names

    def linear(self, parts: Sequence[str], outputs: Sequence[int], inputs: int, *, bias: bool = False) -> Linear:
        """The matrices `<part>.weight`, each [output, inputs], merged along outputs; with `bias`, their vectors too."""
        weights = [(f"{part}.weight", (rows, inputs)) for part, rows in zip(parts, outputs, strict=True)]
        biases = [(f"{part}.bias", (rows,)) for part, rows in zip(parts, outputs, strict=True)]
        return Linear(self.backend, self._pack(weights), self._pack(biases) if bias else None)

    def norm(self, name: str, size: int, eps: float) -> RMSNorm:
        return RMSNorm(self.backend, self._pack([(f"{name}.weight", (size,))]), eps)

    def matrix(self, name: str, rows: int, columns: int) -> Weight:
        """One matrix by its full name, for example an embedding."""
        return self._pack([(name, (rows, columns))])

    def finish(self, ignore: Sequence[str] = ()) -> None:
        """Raise one CheckpointError if anything was wrong or any tensor is left that matches no pattern in `ignore`.

        Patterns are shell-style, on whole names.
        """
        ledger = self._ledger
        left = sorted(self._source.names - ledger.consumed)
        left = [name for name in left if not any(fnmatch.fnmatchcase(name, pattern) for pattern in ignore)]
        faults = [
            f"{what}: {_listed(names)}"
            for what, names in (
                ("tensors missing", ledger.missing),
                ("tensors of the wrong shape", ledger.misshapen),
                ("tensors that this model does not use", left),
            )
            if names
        ]
        if faults:
            raise CheckpointError(f"the checkpoint does not fit its config. {'. '.join(faults)}")

    def _pack(self, wanted: Sequence[tuple[str, tuple[int, ...]]]) -> Weight:
        raws = [raw for name, shape in wanted if (raw := self._pull(self._prefix + name, shape)) is not None]
        if not self._ledger.sound:
            return None
        weight = self.backend.pack(raws)
        self._ledger.bytes_done += sum(raw.data.nbytes for raw in raws)
        if self._progress is not None:
            self._progress(self._ledger.bytes_done, self._source.total_bytes)
        return weight

    def _pull(self, name: str, shape: tuple[int, ...]) -> RawWeight | None:
        if name not in self._source.names:
            self._ledger.missing.append(name)
            return None
        self._ledger.consumed.add(name)
        raw = self._source.tensor(name)
        if raw.shape != shape:
            self._ledger.misshapen.append(f"{name} in {raw.file} is {list(raw.shape)}, not {list(shape)}")
            return None
        return raw


def _listed(names: list[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")
