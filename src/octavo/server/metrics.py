"""What /metrics tells, in Prometheus' format. Owns names, buckets and the registry; engine numbers are read from the
client's latest Stats when scraped, so that serving pays nothing for them.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

import octavo
from octavo.service.client import EngineClient
from octavo.types import FinishReason

FIRST_TOKEN_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60)
INTER_TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5)
LATENCY_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300)

# Stats field -> (metric, what it is)
GAUGES = {
    "running": ("requests_running", "Sequences that take part in steps."),
    "waiting": ("requests_waiting", "Sequences that wait for room."),
    "blocks_total": ("blocks_total", "KV blocks in the pool."),
    "blocks_used": ("blocks_used", "KV blocks that sequences hold."),
    "blocks_cached": ("blocks_cached", "KV blocks that nobody holds and whose contents may be found again."),
    "useful_slots": ("useful_slots", "Token slots in held blocks that hold a token."),
    "allocated_slots": ("allocated_slots", "Token slots in held blocks."),
}
COUNTERS = {
    "useful_slot_seconds": ("useful_slot_seconds", "Useful token slots, summed over time."),
    "allocated_slot_seconds": ("allocated_slot_seconds", "Allocated token slots, summed over time."),
    "steps": ("steps", "Steps of the engine."),
    "compute_seconds": ("compute_seconds", "Seconds spent in the model's forward passes."),
    "prompt_tokens": ("prompt_tokens", "Tokens of admitted prompts, those found in the cache included."),
    "hit_tokens": ("prefix_hit_tokens", "Prompt tokens found in the prefix cache."),
    "generated_tokens": ("generated_tokens", "Tokens drawn."),
    "preemptions": ("preemptions", "Sequences that gave their blocks back to start over later."),
    "evictions": ("evictions", "Cached blocks that were taken for new tokens."),
    "finished": ("engine_finished", "Choices that ended by themselves."),
    "aborted": ("aborted", "Choices that ended because nobody wanted them any more."),
}


class Metrics:
    """One server's metrics. Every name begins with `octavo_`."""

    def __init__(self, client: EngineClient, *, model: str) -> None:
        self.registry = CollectorRegistry()
        self.first_token_s = self._histogram(
            "time_to_first_token_seconds", "From submission to a request's first token.", FIRST_TOKEN_BUCKETS
        )
        self._inter_token_s = self._histogram(
            "inter_token_seconds", "Between two tokens of a choice, as they are taken for sending.", INTER_TOKEN_BUCKETS
        )
        self._latency_s = self._histogram(
            "request_latency_seconds", "From submission to a choice's end.", LATENCY_BUCKETS
        )
        self._finished = self._counter("requests", "Choices by how they ended.", ["finish_reason"])
        self._rejected = self._counter("rejected", "Requests answered with an error, by status.", ["status"])
        self.disconnects = self._counter("disconnects", "Clients that left before their answer was complete.")
        for reason in FinishReason:
            self._finished.labels(reason.value)
        self.registry.register(_EngineCollector(client, model))

    def tokens_arrived(self, count: int, seconds: float) -> None:
        """`count` tokens of a choice came `seconds` after those before them."""
        for _ in range(count):
            self._inter_token_s.observe(seconds / count)

    def choice_finished(self, reason: FinishReason, seconds: float) -> None:
        self._finished.labels(reason.value).inc()
        self._latency_s.observe(seconds)

    def rejected(self, status: int) -> None:
        self._rejected.labels(str(status)).inc()

    async def show(self, request: Request) -> Response:
        """GET /metrics."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(self.registry), headers={"content-type": content_type})

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"octavo_{name}", text, buckets=buckets, registry=self.registry)

    def _counter(self, name: str, text: str, labels: list[str] | None = None) -> Counter:
        return Counter(f"octavo_{name}", text, labels or [], registry=self.registry)


class _EngineCollector(Collector):
    """Reads the client when scraped."""

    def __init__(self, client: EngineClient, model: str) -> None:
        self._client = client
        self._model = model

    def collect(self) -> Iterator[Metric]:
        stats = self._client.stats
        for field, (name, text) in GAUGES.items():
            yield GaugeMetricFamily(f"octavo_{name}", text, value=getattr(stats, field))
        for field, (name, text) in COUNTERS.items():
            yield CounterMetricFamily(f"octavo_{name}", text, value=getattr(stats, field))
        yield CounterMetricFamily(
            "octavo_engine_restarts", "Engines started in the place of one that died.", value=self._client.restarts
        )
        info = GaugeMetricFamily("octavo_build_info", "What runs.", labels=["version", "model", "backend"])
        resolved = self._client.resolved
        info.add_metric([octavo.__version__, self._model, resolved.backend if resolved else ""], 1)
        yield info
