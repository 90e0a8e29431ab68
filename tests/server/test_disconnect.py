"""Clients that leave and clients that are slow: their blocks are freed within a step, and nobody waits for them."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from sim_server import MODEL, SimServer, lone_text, sim_server

STEP_S = 0.02


@pytest.fixture(scope="module")
def slow() -> Iterator[SimServer]:
    """A server that takes 20 ms a token."""
    with sim_server(step_s=STEP_S) as server:
        yield server


def begin(server: SimServer, *, stream: bool, **fields: object) -> socket.socket:
    """Send a request for a long answer and read nothing."""
    body = json.dumps({"model": MODEL, "prompt": "hi", "max_tokens": 900, "stream": stream, **fields}).encode()
    connection = socket.socket()
    connection.settimeout(10)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port))
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def until(condition: Callable[[], bool], within_s: float) -> float:
    """Seconds until the condition held. Fails when it does not within `within_s`."""
    begun = time.perf_counter()
    while not condition():
        assert time.perf_counter() - begun < within_s, "it did not come to that"
        time.sleep(0.002)
    return time.perf_counter() - begun


def metric(server: SimServer, name: str) -> float:
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name + " "))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("choices", [1, 3])
def test_blocks_of_a_client_that_left_are_freed(slow: SimServer, stream: bool, choices: int) -> None:
    before = metric(slow, "octavo_disconnects_total")
    client = slow.deps.client
    connection = begin(slow, stream=stream, n=choices)
    until(lambda: client.stats.running == choices and client.stats.blocks_used > 0, 5)
    steps = client.stats.steps
    connection.close()
    until(lambda: client.stats.blocks_used == 0, 2)
    assert client.stats.running == 0
    assert client.stats.steps <= steps + 5  # the step under way, the next one, and the way through two processes
    assert metric(slow, "octavo_disconnects_total") == before + 1


def test_client_that_left_while_waiting_is_forgotten() -> None:
    with sim_server(step_s=STEP_S, rows=1) as server:
        client = server.deps.client
        first = begin(server, stream=True)
        until(lambda: client.stats.running == 1, 5)
        second = begin(server, stream=True)
        until(lambda: client.stats.waiting == 1, 5)
        second.close()
        until(lambda: client.stats.waiting == 0, 2)
        assert client.stats.running == 1
        first.close()


def test_client_that_left_before_its_body_was_complete(slow: SimServer) -> None:
    before = metric(slow, "octavo_disconnects_total")
    connection = socket.create_connection(("127.0.0.1", slow.port), timeout=10)
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
    time.sleep(0.05)
    connection.close()
    until(lambda: metric(slow, "octavo_disconnects_total") == before + 1, 2)


def test_slow_reader_holds_up_nobody_and_loses_nothing() -> None:
    """It reads nothing until all is written: others are served at full speed meanwhile, and what the socket could not
    take comes as a few events of many tokens. (The answer is 3 MB, which Linux alone would buffer.)"""
    with sim_server(send_buffer=1 << 16) as server:
        connection = begin(server, stream=True, temperature=0, max_tokens=900, logprobs=20, n=8)
        until(lambda: server.deps.client.stats.running == 8, 30)
        begun = time.perf_counter()
        body = {"model": MODEL, "prompt": "quick", "temperature": 0, "max_tokens": 30}
        answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=30).json()
        assert answer["choices"][0]["text"] == lone_text("quick", temperature=0.0, max_tokens=30)
        assert time.perf_counter() - begun < 5
        until(lambda: server.deps.client.stats.running == 0, 120)
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += connection.recv(1 << 20)
        connection.close()
    texts, most = dict.fromkeys(range(8), ""), 0
    for line in data.split(b"\n"):
        if line.startswith(b"data: {"):
            choice = json.loads(line[6:])["choices"][0]
            texts[choice["index"]] += choice["text"]
            most = max(most, len(choice["text"]))
    expected = lone_text("hi", temperature=0.0, max_tokens=900)
    assert texts == dict.fromkeys(range(8), expected)
    assert most > 100
