"""`octavo serve --offline` opens no connection and looks no name up: neither the front end nor the engine child."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

# Imported by every interpreter that finds it: tells that it watches, and what leaves the process by a socket.
WATCHER = """
import os, sys
_log = os.path.join({folder!r}, str(os.getpid()))
open(_log, "a").close()
def _watch(event, arguments):
    listening = event == "socket.getaddrinfo" and arguments[0] == "127.0.0.1"  # the address to listen on, no name
    outward = ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname")
    if event in outward and not listening:
        with open(_log, "a") as log:
            print(event, arguments[1:] if event.startswith("socket.c") else arguments, file=log)
sys.addaudithook(_watch)
"""


def serve_one_answer(model: Path, watched: Path) -> None:
    command = [sys.executable, "-m", "octavo", "serve", str(model), "--port", "0", "--kv-memory", "1MiB", "--offline"]
    paths = os.pathsep.join([str(watched), *filter(None, [os.environ.get("PYTHONPATH")])])
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths})
    assert server.stdout is not None
    with server.stdout:
        found = next(found for line in server.stdout if (found := re.search(r"http://([\d.]+):(\d+)", line)))
        client = http.client.HTTPConnection(found[1], int(found[2]), timeout=30)
        body = json.dumps({"model": model.name, "prompt": "Hi", "max_tokens": 3})
        client.request("POST", "/v1/completions", body)
        assert client.getresponse().status == 200
        client.close()
        server.terminate()
        assert server.wait(20) == 0


def test_nothing_leaves_an_offline_server(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (tmp_path / "sitecustomize.py").write_text(WATCHER.format(folder=str(logs)))
    serve_one_answer(tiny_model("llama"), tmp_path)
    told = {path.name: path.read_text() for path in logs.iterdir()}
    assert len(told) >= 2, "the front end and the engine child were both to be watched"
    assert not any(told.values()), told


def test_the_watcher_sees_what_leaves(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WATCHER.format(folder=str(tmp_path)))
    code = "import socket, os; print(os.getpid()); socket.socket().connect_ex(('127.0.0.1', 9))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "socket.connect" in (tmp_path / run.stdout.strip()).read_text()
