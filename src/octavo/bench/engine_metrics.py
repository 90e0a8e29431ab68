"""What a running engine says of itself at /metrics, and what a load added to it between two readings. A server that
publishes no such metrics yields None.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from octavo.bench.client import Client, ServerRefused
from octavo.bench.report import EngineFigures
from octavo.server.metrics import COUNTERS


def _total(stat: str) -> str:
    """The sample that publishes a total of the engine's Stats."""
    return f"octavo_{COUNTERS[stat][0]}_total"


def read_metrics(base_url: str) -> dict[str, float]:
    """Every sample by its name, summed over labels; empty for a server without metrics."""
    client = Client(base_url)
    try:
        text = client.get("/metrics").decode()
    except (OSError, http.client.HTTPException, ServerRefused, UnicodeDecodeError):
        return {}
    finally:
        client.close()
    values: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                values[sample.name] = values.get(sample.name, 0.0) + sample.value
    except ValueError:  # some other page lives at that address
        return {}
    return values


def engine_figures(
    before: Mapping[str, float], after: Mapping[str, float], peak_rss_bytes: int | None = None
) -> EngineFigures:
    """The difference of two readings."""

    def added(stat: str) -> float | None:
        name = _total(stat)
        return after[name] - before[name] if name in before and name in after else None

    def whole(stat: str) -> int | None:
        difference = added(stat)
        return None if difference is None else round(difference)

    useful, allocated = added("useful_slot_seconds"), added("allocated_slot_seconds")
    return EngineFigures(
        peak_rss_bytes=peak_rss_bytes,
        kv_utilisation=useful / allocated if useful is not None and allocated else None,
        compute_s=added("compute_seconds"),
        preemptions=whole("preemptions"),
        hit_tokens=whole("hit_tokens"),
    )
