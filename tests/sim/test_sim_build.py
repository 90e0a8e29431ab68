"""The factory that stands in for a real engine in tests of service and server."""

from __future__ import annotations

import time

import msgspec
import pytest

from octavo.errors import ConfigError
from octavo.sim.build import SimSpec, build_sim_engine
from octavo.sim.lone import lone_run
from octavo.types import Request, SamplingParams


def silent(label: str, done: int, total: int) -> None:
    pass


def test_it_serves_what_the_spec_says() -> None:
    payload = {"rows": 3, "blocks": 20, "block_size": 8, "max_len": 100, "vocab": 60, "depth": 2, "eos_ids": [5]}
    engine, resolved = build_sim_engine(payload, silent)
    assert (resolved.limits.rows, resolved.blocks, resolved.block_size, resolved.max_len) == (3, 20, 8, 100)
    assert resolved.kv_tokens == 160
    asked = Request(id="a", prompt=[1, 2, 3], params=SamplingParams(max_tokens=20, temperature=1.0), seed=4)
    engine.add(asked)
    tokens = []
    while not engine.idle:
        tokens += [token for output in engine.step() for token in output.tokens]
    assert tokens == lone_run(asked, SimSpec(vocab=60, eos_ids=(5,)).model, max_len=100, eos_ids=[5]).tokens


def test_loading_reports_progress_and_takes_its_time() -> None:
    seen: list[tuple[str, int, int]] = []
    started = time.perf_counter()
    build_sim_engine({"load_s": 0.1}, lambda *report: seen.append(report))
    assert time.perf_counter() - started >= 0.1
    assert [done for _, done, _ in seen] == list(range(11))
    assert {(label, total) for label, _, total in seen} == {("weights", 10)}


def test_steps_take_their_time() -> None:
    engine, _ = build_sim_engine({"step_s": 0.02}, silent)
    engine.add(Request(id="a", prompt=[1], params=SamplingParams(max_tokens=5), seed=0))
    started = time.perf_counter()
    while not engine.idle:
        engine.step()
    assert time.perf_counter() - started >= 5 * 0.02


def test_loading_can_fail() -> None:
    with pytest.raises(ConfigError, match="no memory"):
        build_sim_engine({"load_error": "no memory"}, silent)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="colour"):
        build_sim_engine({"colour": 1}, silent)
