"""What a running engine says of itself at /metrics, and what a load added to it between two readings. A server that
publishes no such metrics yields None.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from octavo.bench.client import Client, ServerRefused
from octavo.bench.report import EngineFigures

USEFUL = "octavo_useful_slot_seconds_total"
ALLOCATED = "octavo_allocated_slot_seconds_total"
PREEMPTIONS = "octavo_preemptions_total"
HIT_TOKENS = "octavo_prefix_hit_tokens_total"


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

    def added(name: str) -> float | None:
        return after[name] - before[name] if name in before and name in after else None

    def whole(name: str) -> int | None:
        difference = added(name)
        return None if difference is None else round(difference)

    useful, allocated = added(USEFUL), added(ALLOCATED)
    return EngineFigures(
        peak_rss_bytes=peak_rss_bytes,
        kv_utilisation=useful / allocated if useful is not None and allocated else None,
        preemptions=whole(PREEMPTIONS),
        hit_tokens=whole(HIT_TOKENS),
    )
