"""Build an engine around SimRunner from plain data: the factory that tests of service and server hand to the
engine process in the place of `octavo.build:build_engine`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from octavo.config import Decision, Resolved
from octavo.core.block_pool import BlockPool
from octavo.core.engine import Engine
from octavo.core.kv_spec import DEFAULT_BLOCK_SIZE
from octavo.core.scheduler import Scheduler
from octavo.errors import ConfigError
from octavo.sim.model import FakeModel
from octavo.sim.runner import SimRunner, StepCost

_LOAD_PARTS = 10


class SimSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a simulated engine is made of. Times in seconds."""

    rows: int = 8
    blocks: int = 256
    block_size: int = DEFAULT_BLOCK_SIZE
    chunk: int = 64
    max_len: int = 1024
    vocab: int = 1000
    queue: int = 64
    watermark: int = 1
    prefix_cache: bool = True
    depth: int = 1
    eos_ids: tuple[int, ...] = (0,)
    eos_rate: float = 0.0  # probability that the next token is eos_ids[0]; it never is otherwise
    step_s: float = 0.0  # real time that each step takes
    load_s: float = 0.0  # real time that loading takes, with progress reports
    load_error: str | None = None  # loading fails with ConfigError and these words
    poison_token: int | None = None  # computing this token crashes the engine
    debug: bool = True

    @property
    def model(self) -> FakeModel:
        return FakeModel(self.vocab, self.eos_ids[0] if self.eos_ids else 0, self.eos_rate)


def build_sim_engine(payload: dict[str, Any], progress: Callable[[str, int, int], None]) -> tuple[Engine, Resolved]:
    """`payload` holds fields of SimSpec. `progress(label, done, total)` is told how loading goes."""
    spec = msgspec.convert(payload, SimSpec)
    for part in range(_LOAD_PARTS):
        progress("weights", part, _LOAD_PARTS)
        time.sleep(spec.load_s / _LOAD_PARTS)
    progress("weights", _LOAD_PARTS, _LOAD_PARTS)
    if spec.load_error is not None:
        raise ConfigError(spec.load_error)
    resolved = _resolved(spec)
    pool = BlockPool(spec.blocks, spec.block_size, caching=spec.prefix_cache)
    scheduler = Scheduler(pool, resolved.limits, spec.eos_ids)
    runner = SimRunner(
        spec.model,
        rows=spec.rows,
        blocks=spec.blocks,
        block_size=spec.block_size,
        depth=spec.depth,
        cost=StepCost(fixed_s=spec.step_s),
        real_time=True,
        poison_token=spec.poison_token,
    )
    return Engine(scheduler, runner, debug=spec.debug), resolved


def _resolved(spec: SimSpec) -> Resolved:
    return Resolved(
        backend="sim",
        dtype="none",
        threads=1,
        weight_bytes=0,
        block_size=spec.block_size,
        blocks=spec.blocks,
        bytes_per_token=0,
        max_len=spec.max_len,
        vocab=spec.vocab,
        rows=spec.rows,
        chunk=spec.chunk,
        queue=spec.queue,
        watermark_blocks=spec.watermark,
        prefix_cache=spec.prefix_cache,
        decisions=[Decision("model", "simulated", "tokens are hashes of what is read through the block tables")],
    )
