"""The server as a process: ports, signals, draining, lifetimes, and what it costs when idle."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
import sse
from sim_server import MODEL, lone_text

from octavo.errors import ConfigError
from octavo.server.listen import listen

PROGRAM = Path(__file__).with_name("run_sim_server.py")


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process and its address, once it is ready. Its standard output has its errors, if any, in between."""
    command = [sys.executable, str(PROGRAM), *arguments]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        if "load_error" not in " ".join(arguments):
            assert child.stdout.readline() == "ready\n"
        yield child, f"http://127.0.0.1:{port}"
    finally:
        child.kill()
        child.wait(10)


def test_port_in_use_is_a_clear_error() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port} on 127.0.0.1 is in use.*--port"):
            listen("127.0.0.1", port)


def test_address_of_another_machine_is_a_clear_error() -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1"):
        listen("192.0.2.1", 0)
    with pytest.raises(ConfigError, match="--host"):
        listen("no such host", 0)
    with pytest.raises(ConfigError, match="--host"):
        listen("a..b", 0)


def test_ipv6() -> None:
    try:
        listener = listen("::1", 0)
    except ConfigError:
        pytest.skip("this machine has no IPv6")
    with listener:
        assert listener.family == socket.AF_INET6


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_lets_answers_finish(stop: signal.Signals) -> None:
    with process("step_s=0.01") as (child, url):
        body = {"model": MODEL, "prompt": "hi", "temperature": 0, "max_tokens": 80, "stream": True}
        data, told = "", False
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=20) as answer:
            for piece in answer.iter_text():
                data += piece
                if not told:
                    told = True
                    child.send_signal(stop)
                    time.sleep(0.1)
                    late = httpx.post(f"{url}/v1/completions", json={"model": MODEL, "prompt": "hi"})
                    assert late.status_code == 503
                    assert httpx.get(f"{url}/health").json()["status"] == "draining"
        assert sse.completion_text(sse.by_choice(sse.frames(data))[0]) == lone_text(
            "hi", temperature=0.0, max_tokens=80
        )
        assert child.wait(10) == 0
        assert child.stdout.read() == "draining 1\nstopped\n"


def test_answers_beyond_the_deadline_end_with_an_error() -> None:
    with process("step_s=0.01", "--drain", "0.3") as (child, url):
        body = {"model": MODEL, "prompt": "hi", "max_tokens": 1000, "stream": True}
        data = ""
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=20) as answer:
            for piece in answer.iter_text():
                if not data:
                    child.send_signal(signal.SIGTERM)
                data += piece
        last = sse.frames(data)[-1]
        assert last["error"]["type"] == "unavailable_error"
        assert child.wait(10) == 0


def test_second_signal_stops_at_once() -> None:
    with process("step_s=0.01") as (child, url):
        body = {"model": MODEL, "prompt": "hi", "max_tokens": 1000, "stream": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=20) as answer:
            pieces = answer.iter_text()  # held, for httpx hangs up when it is collected
            next(pieces)
            child.send_signal(signal.SIGINT)
            time.sleep(0.2)
            assert child.poll() is None
            begun = time.perf_counter()
            child.send_signal(signal.SIGINT)
            assert child.wait(10) == 0
            assert time.perf_counter() - begun < 3
        assert child.stdout.read() == "draining 1\nstopped\n"


def test_engine_that_cannot_load_ends_the_server_with_its_error() -> None:
    with process("load_error=the disk is on fire") as (child, _):
        assert child.wait(15) == 1
        assert "ConfigError: the disk is on fire" in child.stdout.read()


def test_killed_server_leaves_nothing_behind() -> None:
    with process() as (child, url):
        (engine,) = psutil.Process(child.pid).children()
        child.kill()
        child.wait(5)
        deadline = time.perf_counter() + 1.0
        while engine.is_running() and engine.status() != psutil.STATUS_ZOMBIE:
            assert time.perf_counter() < deadline, "the engine outlives its server"
            time.sleep(0.01)
        listen("127.0.0.1", int(url.rpartition(":")[2])).close()


def test_idle_server_uses_under_one_percent_of_a_core() -> None:
    with process() as (child, url):
        assert httpx.get(f"{url}/health").status_code == 200
        family = [psutil.Process(child.pid), *psutil.Process(child.pid).children()]
        assert len(family) == 2

        def used_s() -> float:
            return sum(sum(member.cpu_times()[:2]) for member in family)

        time.sleep(0.5)
        before = used_s()
        time.sleep(3.0)
        assert used_s() - before < 0.03


def test_front_end_brings_neither_numpy_nor_torch() -> None:
    program = "import sys, octavo.server.run; print({'numpy', 'torch'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout == "set()\n"
