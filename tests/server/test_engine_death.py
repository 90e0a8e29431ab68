"""The engine is killed while clients listen: their streams pause and go on, and health says what happens."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator

import httpx
import pytest
import sse
from sim_server import MODEL, SimServer, chat_prompt, lone_text, sim_server

LOAD_S = 0.5


@pytest.fixture
def mortal() -> Iterator[SimServer]:
    """Its engine takes half a second to load and 10 ms a token."""
    with sim_server(step_s=0.01, load_s=LOAD_S) as server:
        yield server


def kill_engine(server: SimServer) -> None:
    pid = server.deps.client.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def test_stream_goes_on_with_the_same_text(mortal: SimServer) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "go on"}], "max_tokens": 60, "n": 2}
    body |= {"temperature": 1, "seed": 11, "stream": True, "stream_options": {"include_usage": True}}
    data, killed = "", False
    with httpx.stream("POST", f"{mortal.url}/v1/chat/completions", json=body, timeout=30) as answer:
        assert answer.status_code == 200
        for piece in answer.iter_text():
            data += piece
            if not killed and data.count("\n\n") > 20:
                kill_engine(mortal)
                killed = True
    *chunks, usage = sse.frames(data)
    choices = sse.by_choice(chunks)
    for index in (0, 1):
        expected = lone_text(chat_prompt("go on"), seed=11, choice=index, max_tokens=60)
        assert sse.chat_text(choices[index]) == expected
        assert [choice["finish_reason"] for choice in choices[index] if choice["finish_reason"]] == ["length"]
    assert usage["usage"]["completion_tokens"] == 120
    assert mortal.deps.client.restarts == 1
    assert mortal.deps.client.stats.blocks_used == 0


def test_requests_wait_and_health_tells_during_a_restart(mortal: SimServer) -> None:
    with httpx.Client(base_url=mortal.url, timeout=30) as http:
        assert http.get("/health").json() == {"status": "ok"}
        kill_engine(mortal)
        answer = http.get("/health")
        while answer.status_code == 200:  # the death has not been noticed yet
            answer = http.get("/health")
        assert answer.status_code == 503
        assert answer.json()["status"] == "restarting"
        assert answer.headers["retry-after"].isdigit()
        begun = time.perf_counter()
        body = {"model": MODEL, "prompt": "hi", "temperature": 0, "max_tokens": 5}
        text = http.post("/v1/completions", json=body).json()["choices"][0]["text"]
        assert text == lone_text("hi", temperature=0.0, max_tokens=5)
        assert time.perf_counter() - begun > LOAD_S / 2  # it waited for the new engine
        assert http.get("/health").status_code == 200
        assert "octavo_engine_restarts_total 1.0" in http.get("/metrics").text


def test_health_while_loading_and_after_a_failed_load() -> None:
    with (
        sim_server(wait=False, load_s=1.0, load_error="no such thing") as server,
        httpx.Client(base_url=server.url, timeout=30) as http,
    ):
        answer = http.get("/health")
        assert (answer.status_code, answer.json()["status"]) == (503, "loading")
        assert http.get("/ping").status_code == 503
        assert http.get("/v1/models").json()["data"][0]["max_model_len"] is None
        while http.get("/health").json()["status"] == "loading":
            time.sleep(0.02)
        answer = http.get("/health")
        assert answer.json()["status"] == "dead"
        assert answer.json()["error"]["message"]
        body = {"model": MODEL, "prompt": "hi"}
        assert http.post("/v1/completions", json=body).status_code == 503


def test_health_answers_during_a_long_step() -> None:
    with sim_server(step_s=1.5) as server, httpx.Client(base_url=server.url, timeout=30) as http:
        body = {"model": MODEL, "prompt": "hi", "max_tokens": 3, "stream": True}
        with http.stream("POST", "/v1/completions", json=body) as stream, httpx.Client(base_url=server.url) as other:
            begun = time.perf_counter()
            for _ in range(10):
                assert other.get("/health").status_code == 200
            assert time.perf_counter() - begun < 1.0
            assert json.loads(next(stream.iter_lines()).removeprefix("data: "))["choices"]
