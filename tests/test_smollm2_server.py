"""The default model behind the real server, as a newcomer meets it: `octavo serve`, then the openai package."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import psutil
import pytest

USERS = 23
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def address(smollm2_path: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "octavo", "serve", str(smollm2_path), "--port", "0", "--offline"]
    process = subprocess.Popen(
        [*command, "--served-name", "smollm2", "--kv-memory", "256MiB"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    yield next(found[0] for line in lines if (found := re.search(r"http://[\d.:]+", line)))
    process.terminate()
    assert process.wait(20) == 0
    process.stdout.close()


def stream(address: str, max_tokens: int, on_text: threading.Event | None = None, *, to_the_end: bool = False) -> str:
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
    text, reasons = "", []
    for chunk in client.chat.completions.create(
        model="smollm2",
        messages=QUESTION,
        stream=True,
        temperature=0,
        max_tokens=max_tokens,
        extra_body={"ignore_eos": to_the_end},
    ):
        text += chunk.choices[0].delta.content or ""
        reasons += [chunk.choices[0].finish_reason] if chunk.choices[0].finish_reason else []
        if text and on_text is not None:
            on_text.set()
    assert reasons in (["stop"], ["length"])
    return text


def metric(address: str, name: str) -> float:
    page = urllib.request.urlopen(f"{address}/metrics", timeout=10).read().decode()
    return float(next(line.split()[-1] for line in page.splitlines() if line.startswith(f"octavo_{name} ")))


def engine_pid(address: str) -> int:
    port = int(address.rsplit(":", 1)[1])
    front_ends = {c.pid for c in psutil.net_connections("tcp") if c.laddr.port == port and c.status == "LISTEN"}
    [child] = psutil.Process(front_ends.pop()).children()
    return child.pid


@pytest.mark.slow
def test_twenty_three_people_at_once(address: str) -> None:
    with ThreadPoolExecutor(USERS) as people:
        answers = list(people.map(lambda _: stream(address, 12), range(USERS)))
    assert all("Paris" in answer for answer in answers), answers
    assert metric(address, "blocks_used") == 0
    assert metric(address, "requests_running") == 0


@pytest.mark.slow
def test_a_killed_engine_is_a_pause_in_the_stream(address: str) -> None:
    """The answer is so long that a fast engine has not written all of it when the kill arrives."""
    undisturbed = stream(address, 600, to_the_end=True)
    restarts = metric(address, "engine_restarts_total")
    engine = engine_pid(address)
    begun = threading.Event()
    with ThreadPoolExecutor(1) as people:
        answer = people.submit(stream, address, 600, begun, to_the_end=True)
        assert begun.wait(60)
        os.kill(engine, signal.SIGKILL)
        assert answer.result(120) == undisturbed
    assert metric(address, "engine_restarts_total") == restarts + 1
