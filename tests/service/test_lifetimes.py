"""Who lives how long: the child ends with its parent, sleeps when idle, leaves nothing behind, and starts alike from
every kind of program."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from sim_client import FACTORY, alone, ask, read_one, running

from octavo.errors import EngineUnavailable
from octavo.service import process
from octavo.service.client import EngineClient
from octavo.types import FinishReason

pytestmark = pytest.mark.anyio

_PARENT = """
import asyncio
from octavo.service.client import EngineClient
from octavo.types import Request, SamplingParams

async def main():
    client = EngineClient("octavo.sim.build:build_sim_engine", {spec})
    await client.start()
    await client.ready()
    stream = client.submit(Request(id="r", prompt=[1, 2, 3], params=SamplingParams(max_tokens=5), seed=1))
    {then}

asyncio.run(main())
"""
_ANSWER = "print([t async for outputs in stream for o in outputs for t in o.tokens]); await client.close()"


def _gone(child: psutil.Process, within_s: float) -> bool:
    """The process has ended; where nobody reaps orphans it may stay as a zombie."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if not child.is_running() or child.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("step_s", [0.01, 60.0], ids=["between steps", "in a long step"])
async def test_killing_the_parent_ends_the_child_within_a_second(step_s: float) -> None:
    script = _PARENT.format(
        spec={"step_s": step_s}, then="await asyncio.sleep(0.3); print(client.pid, flush=True); await asyncio.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.ppid() == parent.pid
        parent.kill()
    assert _gone(child, within_s=1.0)


async def test_a_parent_that_ends_without_closing_takes_the_child_along() -> None:
    script = _PARENT.format(spec={"step_s": 60.0}, then="print(client.pid, flush=True)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=True)
    assert not psutil.pid_exists(int(done.stdout)) or _gone(psutil.Process(int(done.stdout)), within_s=1.0)
    assert done.stderr == ""


async def test_an_idle_child_sleeps() -> None:
    async with running() as client:
        await read_one(client.submit(ask()))
        child = psutil.Process(client.pid)
        before = child.cpu_times()
        await asyncio.sleep(2)
        after = child.cpu_times()
    assert (after.user + after.system) - (before.user + before.system) < 0.02


async def test_interrupts_are_the_front_ends_business() -> None:
    request = ask(max_tokens=30)
    async with running(step_s=0.01) as client:
        stream = client.submit(request)
        await anext(stream)
        assert client.pid is not None
        os.kill(client.pid, signal.SIGINT)
        assert os.getpgid(client.pid) != os.getpgid(0)
        last = [outputs async for outputs in stream][-1][-1]
        assert (last.finish, client.restarts) == (FinishReason.LENGTH, 0)


async def test_the_child_holds_no_socket_of_its_parent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.set_inheritable(True)
        async with running() as client:
            assert psutil.Process(client.pid).net_connections() == []
            assert len(psutil.Process().net_connections()) >= 1


async def test_output_of_libraries_does_not_spoil_the_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    request = ask()
    async with running("odd_factories:prints") as client:
        assert (await read_one(client.submit(request))).is_whole(alone(request), 3)
    assert "loading ..." in capfd.readouterr().err


async def test_progress_is_told_now_and_then() -> None:
    told: list[tuple[str, int, int]] = []
    client = EngineClient("odd_factories:reports_often", {}, on_progress=lambda *progress: told.append(progress))
    await client.start()
    await client.ready()
    await client.close()
    assert told[0] == ("tensors", 0, 10_000)
    assert told[-1] == ("weights", 10, 10)
    assert len(told) < 50
    assert client.load_s is not None


@pytest.mark.parametrize("spec", [{"load_s": 60.0}, {"step_s": 60.0}], ids=["loading", "in a long step"])
async def test_closing_does_not_wait(spec: dict[str, float]) -> None:
    client = EngineClient(FACTORY, spec)
    await client.start()
    if "step_s" in spec:
        await client.ready()
        client.submit(ask())
        await asyncio.sleep(0.2)
    waiting = asyncio.create_task(client.ready())
    await asyncio.sleep(0)
    child = psutil.Process(client.pid)
    began = time.perf_counter()
    await asyncio.gather(client.close(), client.close())
    await client.close()
    assert time.perf_counter() - began < 1
    assert not child.is_running()
    assert client.state == "closed"
    if "load_s" in spec:
        with pytest.raises(EngineUnavailable):
            await waiting


async def test_a_child_that_does_not_leave_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_LEAVE_S", 0.2)
    async with running() as client:
        child = psutil.Process(client.pid)
        child.suspend()
        await client.close()
        assert not child.is_running()


async def test_closing_before_the_start() -> None:
    client = EngineClient(FACTORY, {})
    await client.close()
    assert client.state == "closed"


async def test_a_missing_interpreter_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    client = EngineClient(FACTORY, {})
    with pytest.raises(EngineUnavailable, match="could not be started"):
        await client.start()
    await client.close()


async def test_fifty_lives_leave_nothing_behind() -> None:
    async def live() -> None:
        async with running() as client:
            await read_one(client.submit(ask(max_tokens=2)))

    await live()
    this = psutil.Process()

    def held() -> tuple[int, int, int]:
        return this.num_fds(), this.num_threads(), len(this.children())

    before = held()
    for _ in range(25):
        await asyncio.gather(live(), live())
    # The kernel counts a joined thread a moment longer than Python does; anything that is left behind stays.
    deadline = time.monotonic() + 5
    while any(now > then for now, then in zip(held(), before, strict=True)):
        assert time.monotonic() < deadline, (before, held())
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("way", ["script without a guard", "script on standard input", "module"])
async def test_every_kind_of_program_can_start_an_engine(way: str, tmp_path: Path) -> None:
    """A module of the standard library's name beside the user does not get into the engine either."""
    script = _PARENT.format(spec={}, then=_ANSWER) + "print('once')\n"
    (tmp_path / "program.py").write_text(script)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "gc.py").write_text("raise SystemExit('shadowed')\n")
    (elsewhere / "importlib.py").write_text("raise SystemExit('shadowed')\n")
    arguments = {
        "script without a guard": ["../program.py"],
        "script on standard input": ["-P", "-"],
        "module": ["-P", "-c", "import runpy; runpy.run_path('../program.py', run_name='__main__')"],
    }[way]
    done = subprocess.run(
        [sys.executable, *arguments],
        input=script if way == "script on standard input" else "",
        cwd=elsewhere,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    tokens = alone(ask(max_tokens=5, temperature=1.0)).tokens
    assert (done.stdout, done.stderr) == (f"{tokens}\nonce\n", "")
