"""The decode measurement on a simulated engine with a known step time."""

import pytest

from octavo.bench.decode import bench_decode
from octavo.config import Resolved
from octavo.core.engine import Engine
from octavo.errors import BenchError
from octavo.sim.build import build_sim_engine


def simulated(**spec: object) -> tuple[Engine, Resolved]:
    return build_sim_engine({"rows": 8, "eos_ids": [], **spec}, lambda *_: None)


def test_rates_follow_the_step_time() -> None:
    engine, resolved = simulated(step_s=0.004, chunk=64)
    figures = bench_decode(engine, resolved, 4, prompt_tokens=32, output_tokens=16)
    assert figures.users == 4
    assert 4.0 <= figures.step_ms < 8.0
    # 128 prompt tokens at 64 per step are at least two steps; each decode step writes four tokens.
    assert 128 / 0.024 < figures.prefill_tok_s <= 128 / 0.008
    assert 4 / 0.008 < figures.decode_tok_s <= 4 / 0.004


def test_every_sequence_runs_to_its_full_length() -> None:
    engine, resolved = simulated(eos_ids=[0], eos_rate=0.5)
    bench_decode(engine, resolved, 3, prompt_tokens=20, output_tokens=10)
    assert engine.idle
    assert engine.stats().generated_tokens == 30
    assert engine.stats().hit_tokens == 0


def test_too_many_users_and_too_long_contexts_are_refused() -> None:
    engine, resolved = simulated(max_len=100)
    with pytest.raises(BenchError, match="--max-running 9"):
        bench_decode(engine, resolved, 9)
    with pytest.raises(BenchError, match="context of 100"):
        bench_decode(engine, resolved, 1)
