"""A child spawned before it is known what it shall load: used once, and never left behind."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import TimeoutExpired

import psutil
import pytest
from sim_client import FACTORY, alone, ask, read_one

from octavo.service.client import EngineClient
from octavo.service.early import EarlyEngine
from octavo.service.process import spawn

pytestmark = pytest.mark.anyio


@contextmanager
def early_engine() -> Iterator[tuple[EarlyEngine, psutil.Process]]:
    """One and its process. Other tests' servers may have children in this process."""
    before = psutil.Process().children()
    with EarlyEngine(FACTORY) as early:
        (child,) = (process for process in psutil.Process().children() if process not in before)
        yield early, child


async def test_the_first_engine_is_the_early_one_and_the_next_is_not() -> None:
    request = ask()
    with early_engine() as (early, child):
        client = EngineClient(FACTORY, {}, early=early)
        await client.start()
        await client.ready()
        assert client.pid == child.pid
        child.kill()
        assert (await read_one(client.submit(request))).is_whole(alone(request), 3)
        assert client.pid != child.pid
        await client.close()
    assert not psutil.pid_exists(child.pid)


def test_a_child_that_nobody_took_leaves() -> None:
    with early_engine() as (_, child):
        assert child.is_running()
    assert not psutil.pid_exists(child.pid)


async def test_it_imports_before_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leaves_a_trace.py").write_text("import pathlib\npathlib.Path(__file__).with_suffix('.done').touch()\n")
    monkeypatch.syspath_prepend(tmp_path)
    with spawn("leaves_a_trace:build") as child:
        assert child.stdin is not None
        for _ in range(200):
            if (tmp_path / "leaves_a_trace.done").exists():
                break
            with pytest.raises(TimeoutExpired):
                child.wait(0.05)
    assert (tmp_path / "leaves_a_trace.done").exists()


async def test_one_that_dies_before_it_is_taken_is_replaced() -> None:
    request = ask()
    with early_engine() as (early, child):
        client = EngineClient(FACTORY, {}, early=early)
        child.kill()
        await client.start()
        await client.ready()
        assert client.pid != child.pid
        assert (await read_one(client.submit(request))).is_whole(alone(request), 3)
        await client.close()
