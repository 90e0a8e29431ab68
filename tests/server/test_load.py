"""Many at once: every request is answered or turned away with a time to come back, and nothing hangs."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import httpx
import openai
import pytest
from sim_server import MODEL, SimServer, lone_text, sim_server

TEXT = "/v1/completions"


async def ask(port: int, body: dict) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body, over a connection of its own; light enough for thousands."""
    data = json.dumps({"model": MODEL, **body}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {TEXT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    answer = await reader.read()
    writer.close()
    top, _, rest = answer.partition(b"\r\n\r\n")
    status, *lines = top.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, rest


@pytest.mark.anyio
async def test_2000_requests_at_once() -> None:
    with sim_server(rows=16, queue=64, blocks=512, step_s=0.001) as server:
        body = {"prompt": "hi", "temperature": 0, "max_tokens": 20}
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*(ask(server.port, body) for _ in range(2000)))
        statuses = Counter(status for status, *_ in answers)
        assert statuses.keys() == {200, 429}
        assert statuses[200] >= 64
        expected = lone_text("hi", temperature=0.0, max_tokens=20)
        for status, headers, data in answers:
            if status == 200:
                assert json.loads(data)["choices"][0]["text"] == expected
            else:
                assert int(headers["retry-after"]) >= 1
                assert json.loads(data)["error"]["type"] == "rate_limit_error"
        assert server.deps.client.unfinished == 0
        assert server.deps.client.stats.blocks_used == 0
        rejected = f'octavo_rejected_total{{status="429"}} {float(statuses[429])}'
        assert rejected in httpx.get(f"{server.url}/metrics").text


@pytest.mark.anyio
async def test_streams_are_turned_away_with_a_status_too() -> None:
    with sim_server(rows=1, queue=2, step_s=0.01) as server:
        answers = await asyncio.gather(*(ask(server.port, {"prompt": "hi", "stream": True}) for _ in range(12)))
        statuses = Counter(status for status, *_ in answers)
        assert statuses.keys() == {200, 429}
        for status, headers, data in answers:
            if status == 200:
                assert b"data: [DONE]" in data
            else:
                assert headers["content-type"] == "application/json"


def test_client_library_comes_back_by_itself(server: SimServer) -> None:
    """openai retries a 429 when told how long to wait."""
    with sim_server(rows=1, queue=1, step_s=0.005) as small:

        async def all_of_them() -> list[str]:
            async with openai.AsyncOpenAI(base_url=f"{small.url}/v1", api_key="none", max_retries=10) as client:
                create = client.completions.create
                asking = (create(model=MODEL, prompt="hi", temperature=0, max_tokens=10) for _ in range(6))
                return [answer.choices[0].text for answer in await asyncio.gather(*asking)]

        assert asyncio.run(all_of_them()) == [lone_text("hi", temperature=0.0, max_tokens=10)] * 6


@pytest.mark.anyio
async def test_long_prompts_do_not_hold_up_the_loop(server: SimServer) -> None:
    """While megabytes are tokenized, health answers promptly."""
    long = asyncio.gather(*(ask(server.port, {"prompt": "word " * 150_000}) for _ in range(4)))
    slowest = 0.0
    async with httpx.AsyncClient(base_url=server.url) as http:
        while not long.done():
            begun = asyncio.get_running_loop().time()
            assert (await http.get("/health")).status_code == 200
            slowest = max(slowest, asyncio.get_running_loop().time() - begun)
            await asyncio.sleep(0.01)
    assert [status for status, *_ in await long] == [400] * 4
    assert slowest < 0.5
