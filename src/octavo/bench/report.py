"""The result of a load test as numbers: what was measured becomes one struct, which the command prints and writes as
JSON. Knows neither HTTP nor terminals.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from octavo.bench.exchange import Exchange

ERRORS_SHOWN = 5


class Spread(msgspec.Struct, frozen=True):
    """Median and 95th percentile in milliseconds; None without samples."""

    p50_ms: float | None
    p95_ms: float | None


class EngineFigures(msgspec.Struct, frozen=True):
    """What the server said and showed of itself over the load; None where it does not.

    `kv_utilisation` is the time-averaged share of useful among allocated token slots, `compute_s` the time spent in the
    model's forward passes.
    """

    peak_rss_bytes: int | None = None
    kv_utilisation: float | None = None
    compute_s: float | None = None
    preemptions: int | None = None
    hit_tokens: int | None = None


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """One load test. Rates count the tokens of successful requests over the whole wall time."""

    model: str
    users: int
    requests_per_user: int
    seed: int
    requests: int
    failed: int
    wall_s: float
    prompt_tokens: int
    output_tokens: int
    output_tokens_asked: int
    output_tok_s: float
    total_tok_s: float
    ttft: Spread
    inter_token: Spread
    engine: EngineFigures
    errors: list[str]


def load_report(
    exchanges: Sequence[Exchange],
    wall_s: float,
    *,
    model: str,
    users: int,
    requests_per_user: int,
    seed: int,
    output_tokens_asked: int,
    engine: EngineFigures,
) -> LoadReport:
    """Count. `output_tokens_asked` is the sum of all max_tokens: with end-of-text ignored, as many come back."""
    good = [exchange for exchange in exchanges if exchange.error is None]
    prompt_tokens = sum(exchange.prompt_tokens for exchange in good)
    output_tokens = sum(exchange.output_tokens for exchange in good)
    errors = sorted({exchange.error for exchange in exchanges if exchange.error is not None})
    return LoadReport(
        model=model,
        users=users,
        requests_per_user=requests_per_user,
        seed=seed,
        requests=len(exchanges),
        failed=len(exchanges) - len(good),
        wall_s=wall_s,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        output_tokens_asked=output_tokens_asked,
        output_tok_s=output_tokens / wall_s,
        total_tok_s=(prompt_tokens + output_tokens) / wall_s,
        ttft=spread([exchange.first - exchange.started for exchange in good if exchange.first is not None]),
        inter_token=spread([gap for exchange in good for gap in exchange.gaps]),
        engine=engine,
        errors=errors[:ERRORS_SHOWN],
    )


def spread(seconds: Sequence[float]) -> Spread:
    ordered = sorted(seconds)
    if not ordered:
        return Spread(None, None)
    return Spread(percentile(ordered, 0.50) * 1e3, percentile(ordered, 0.95) * 1e3)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the sorted, non-empty samples lie, interpolated between neighbours."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
