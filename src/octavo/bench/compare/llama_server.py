"""llama-server as a contender: `python -m octavo.bench.compare.llama_server PROGRAM` starts the program for each chat
load and drives it over HTTP, as `own.py` does with ours. Takes no settings.
"""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from octavo.bench.client import Client, ServerRefused
from octavo.bench.compare.own import load_figures
from octavo.bench.compare.peers.job_loop import CannotRun, Job, Result, serve_jobs
from octavo.bench.load import inspect_target

START_S = 120.0
POLL_S = 0.1
STOP_S = 10.0
CELLS = 256  # each slot's context is rounded up to a multiple of this


def run(program: str, job: Job) -> Result:
    if job["kind"] != "chats":
        raise CannotRun(f"llama-server has no {job['kind']}")
    users = len(job["lengths"])
    longest = max(prompt + output for own in job["lengths"] for prompt, output in own)
    per_slot = -(-(longest + longest // 16 + 32) // CELLS) * CELLS  # prompts of words differ a little from plan
    arguments = ["-m", job["model"], "-t", str(job["threads"]), "-tb", str(job["threads"])]
    arguments += ["-np", str(users), "-c", str(users * per_slot), "-fa", "on"]
    with llama_server([program, *arguments]) as base_url:
        figures = load_figures(inspect_target(base_url, seed=job["seed"]), job)
    return {"figures": figures, "settings": {"flash": True}, "versions": {"llama-server": version(program)}}


def version(program: str) -> str:
    """What the program says of itself; the second word of its first line is a build number."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=STOP_S, check=False)
    lines = (said.stdout + said.stderr).strip().splitlines()
    return next((line.removeprefix("version:").strip() for line in lines if "version" in line), "unknown")


@contextmanager
def llama_server(command: list[str]) -> Iterator[str]:
    """The base URL of a server that answers. CannotRun when it does not come up."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        base_url = f"http://127.0.0.1:{port}"
        _wait_for_health(base_url, process, Path(command[0]).name)
        yield base_url
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_health(base_url: str, process: subprocess.Popen[bytes], name: str) -> None:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        client = Client(base_url)
        try:
            client.get("/health")
        except (OSError, http.client.HTTPException, ServerRefused):
            time.sleep(POLL_S)  # not there yet, or still loading
        else:
            return
        finally:
            client.close()
    raise CannotRun(f"{name} did not come up (exit code {process.poll()})")


if __name__ == "__main__":
    serve_jobs(lambda job: run(sys.argv[1], job))
