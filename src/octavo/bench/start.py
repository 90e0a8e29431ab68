"""How long a user waits from `octavo serve` to the first token of the first answer, and what the server then costs
while nobody asks. Each run is a new server; the files it reads are in the system's cache from the second on.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from octavo.bench.client import Client
from octavo.bench.exchange import Exchange
from octavo.bench.server_process import ServerProcess
from octavo.bench.user import User
from octavo.errors import BenchError

QUESTION = "Why is the sky blue?"
SETTLE_S = 0.5  # after an answer, before idling is measured


class StartFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over `runs`. Seconds from the start of the command to the printed address and to the first token that a
    client then gets; the largest resident size of all processes, loading included; CPU used while idle, as a share of
    one core."""

    runs: int
    address_s: float
    first_token_s: float
    peak_rss_bytes: int
    idle_cpu: float


def bench_start(
    arguments: Sequence[str],
    *,
    runs: int,
    idle_s: float,
    track: Callable[[Sequence[int]], Iterator[int]] = iter,
) -> StartFigures:
    """Start `octavo serve` with `arguments` `runs` times. BenchError when it does not start or answer."""
    rows = [_start_once(arguments, idle_s) for _ in track(range(runs))]
    address_s, first_s, rss, idle = (statistics.median(column) for column in zip(*rows, strict=True))
    return StartFigures(runs=runs, address_s=address_s, first_token_s=first_s, peak_rss_bytes=int(rss), idle_cpu=idle)


def _start_once(arguments: Sequence[str], idle_s: float) -> tuple[float, float, int, float]:
    began = time.perf_counter()
    with ServerProcess(arguments) as server:
        address_s = time.perf_counter() - began
        client = Client(server.base_url)
        try:
            model = msgspec.json.decode(client.get("/v1/models"))["data"][0]["id"]
            body = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 8}
            exchange = asyncio.run(_ask(server.base_url, body))
        finally:
            client.close()
        if exchange.first is None:
            raise BenchError(f"the server did not answer: {exchange.error}")
        time.sleep(SETTLE_S)
        before = server.cpu_seconds()
        time.sleep(idle_s)
        idle = (server.cpu_seconds() - before) / idle_s
        return address_s, exchange.first - began, server.peak_rss_bytes(), idle


async def _ask(base_url: str, body: dict[str, Any]) -> Exchange:
    user = User(base_url)
    try:
        return await user.chat(body)
    finally:
        user.close()
