"""octavo serve as a process: the plan and the line to try that it prints, and how it ends."""

import json
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from octavo_process import Octavo

from octavo.cli.front_end import default_name

SMALL = ("--kv-memory", "1MiB", "--max-running", "2", "--offline")


@pytest.fixture
def server(tiny_model: Callable[[str], Path], octavo: Octavo) -> Iterator[subprocess.Popen[str]]:
    process = octavo("serve", tiny_model("llama"), "--port", "0", "--served-name", "it's tiny", *SMALL)
    yield process
    process.kill()
    process.communicate()


def printed_until_curl(server: subprocess.Popen[str]) -> list[str]:
    lines = []
    assert server.stdout is not None
    for line in server.stdout:
        lines.append(line.rstrip())
        if line.startswith("curl"):
            return lines
    pytest.fail(f"no curl line: {lines}, {server.communicate()}")


def test_the_plan_and_the_line_to_try(server: subprocess.Popen[str]) -> None:
    lines = printed_until_curl(server)
    text = "\n".join(lines)
    for words in (
        "Octavo serves it's tiny",
        "weights",
        "KV cache",
        "--kv-memory 1MiB",
        "KV blocks",
        "256 tokens",
        "room",
    ):
        assert words in text
    command = shlex.split(lines[-1])
    request = urllib.request.Request(command[1], command[-1].encode(), {"Content-Type": "application/json"})
    assert json.loads(command[-1])["stream"] is True
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.read().endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_quietly(server: subprocess.Popen[str], number: signal.Signals) -> None:
    printed_until_curl(server)
    server.send_signal(number)
    _, errors = server.communicate(timeout=10)
    assert errors == ""
    assert server.returncode == 0


def test_a_port_in_use_is_one_clear_line(octavo: Octavo, tiny_model: Callable[[str], Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = octavo("serve", tiny_model("llama"), "--port", port, *SMALL)
        said, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert said == ""
    assert re.fullmatch(rf"error: port {port} on 127\.0\.0\.1 is in use: .*--port\n", errors)


def test_a_model_that_cannot_be_loaded_is_one_clear_line(octavo: Octavo, tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    process = octavo("serve", tmp_path / "broken.gguf", "--port", "0")
    said, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert said == ""
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1


def test_an_engine_that_cannot_start_is_one_clear_line(octavo: Octavo, tiny_model: Callable[[str], Path]) -> None:
    process = octavo("serve", tiny_model("llama"), "--port", "0", "--offline", "--kv-memory", "900TiB")
    said, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert said == ""
    assert errors.startswith("error: --kv-memory 900TiB exceeds")
    assert errors.count("\n") == 1


def test_the_front_end_loads_no_arrays() -> None:
    code = "import octavo.cli.front_end, octavo.checkpoint.store, octavo.text.load, octavo.server.run, sys; "
    code += "print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_local_model_is_named_by_the_last_part_of_its_path(tmp_path: Path) -> None:
    """A path of this machine is nobody else's business."""
    directory, file = tmp_path / "tiny-llama", tmp_path / "Tiny.Q4_1.gguf"
    directory.mkdir()
    file.touch()
    assert default_name(str(directory), directory) == "tiny-llama"
    assert default_name(str(file), file) == "Tiny.Q4_1"
    assert default_name("smollm2", tmp_path / "stored" / "SmolLM2.gguf") == "smollm2"
    assert default_name("org/name", tmp_path / "stored" / "x") == "org/name"
