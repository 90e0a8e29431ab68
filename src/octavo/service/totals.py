"""Stats over restarts: an engine's totals start at zero, the client's never go backwards. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.core.engine import Stats

_TOTALS = (
    "useful_slot_seconds",
    "allocated_slot_seconds",
    "steps",
    "prompt_tokens",
    "hit_tokens",
    "generated_tokens",
    "preemptions",
    "evictions",
    "finished",
    "aborted",
    "compute_seconds",
)


class Totals:
    """Adds what earlier engines counted to what the present one reports."""

    def __init__(self) -> None:
        self.present = Stats()
        self._earlier = Stats()

    def sum(self) -> Stats:
        """Gauges of the present engine, totals of all."""
        return msgspec.structs.replace(self.present, **self._totals())

    def engine_died(self) -> None:
        """Keep its totals. Its gauges go to zero, but for the size of the pool."""
        self._earlier = Stats(**self._totals())
        self.present = Stats(blocks_total=self.present.blocks_total)

    def _totals(self) -> dict[str, Any]:
        return {name: getattr(self._earlier, name) + getattr(self.present, name) for name in _TOTALS}
