"""/metrics tells what happened, under the names that dashboards and the bench read."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sim_server import MODEL, SimServer, sim_server

import octavo


@pytest.fixture(scope="module")
def used() -> Iterator[SimServer]:
    """A server that has answered two equal requests, one of them streamed, and refused a third."""
    with sim_server(step_s=0.002) as server, httpx.Client(base_url=server.url, timeout=20) as http:
        body = {"model": MODEL, "prompt": "x" * 40, "max_tokens": 10, "n": 2}
        assert http.post("/v1/completions", json=body).status_code == 200
        assert http.post("/v1/completions", json={**body, "stream": True}).status_code == 200
        assert http.post("/v1/completions", json={**body, "n": 0}).status_code == 400
        yield server


def samples(server: SimServer, **headers: str) -> dict[str, float]:
    text = httpx.get(f"{server.url}/metrics", headers=headers).text
    return {
        sample.name + "".join(f"[{value}]" for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_number_is_told(used: SimServer) -> None:
    told = samples(used)
    expected = {
        "octavo_requests_running": 0,
        "octavo_requests_waiting": 0,
        "octavo_preemptions_total": 0,
        "octavo_prompt_tokens_total": 2 * 2 * 40,
        "octavo_generated_tokens_total": 40,
        "octavo_blocks_total": 256,
        "octavo_blocks_used": 0,
        "octavo_evictions_total": 0,
        "octavo_time_to_first_token_seconds_count": 4,
        "octavo_inter_token_seconds_count": 36,
        "octavo_request_latency_seconds_count": 4,
        "octavo_requests_total[length]": 4,
        "octavo_requests_total[abort]": 0,
        "octavo_rejected_total[400]": 1,
        "octavo_disconnects_total": 0,
        "octavo_engine_restarts_total": 0,
        f"octavo_build_info[sim][{MODEL}][{octavo.__version__}]": 1,
    }
    differing = {name: (told.get(name), value) for name, value in expected.items() if told.get(name) != value}
    # The engine's own count of prompt tokens is its affair: forks may share the prompt.
    assert differing.keys() <= {"octavo_prompt_tokens_total"}, differing
    assert told["octavo_prompt_tokens_total"] in (80, 160)
    assert told["octavo_prefix_hit_tokens_total"] >= 32
    assert told["octavo_blocks_cached"] > 0
    assert 0 < told["octavo_useful_slot_seconds_total"] <= told["octavo_allocated_slot_seconds_total"]
    assert {"octavo_useful_slots", "octavo_allocated_slots"} <= told.keys()


def test_latencies_are_plausible(used: SimServer) -> None:
    """At two milliseconds a step, ten tokens take twenty at least."""
    told = samples(used)
    assert told["octavo_request_latency_seconds_sum"] >= 4 * 10 * 0.002
    assert 0.001 < told["octavo_inter_token_seconds_sum"] / 36 < 0.1
    assert told["octavo_time_to_first_token_seconds_sum"] >= 4 * 0.002


def test_servers_share_no_registry(used: SimServer) -> None:
    with sim_server() as other:
        assert samples(other)["octavo_requests_total[length]"] == 0
