"""Octavo as a contender: `python -m octavo.bench.compare.own` answers jobs as the peers' scripts do. In process it
steps the engine; a chat load goes over HTTP to an `octavo serve` of its own.

Settings: `chunk` (tokens in one step) and `kv` (what the cache holds), the latter where it is not the default. All
other options are the job's `options`, the fields of EngineConfig.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from octavo import __version__
from octavo.bench.chats import Chat, random_words
from octavo.bench.compare.peers.inputs import SLACK_TOKENS, DecodeWindow, draw_prompts
from octavo.bench.compare.peers.job_loop import CannotRun, Job, Result, serve_jobs
from octavo.bench.load import Target, inspect_target, run_load
from octavo.bench.server_process import ServerProcess
from octavo.build import BuildOrder, build_engine, engine_config
from octavo.cli.options import arguments_of
from octavo.config import Resolved
from octavo.core.engine import Engine
from octavo.types import Request, SamplingParams


class OwnContender:
    """The engine of the last in-process job is kept, because the next one usually asks for the same."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._resolved: Resolved | None = None
        self._order: BuildOrder | None = None
        self._requests = 0

    def run(self, job: Job) -> Result:
        if job["kind"] == "generate":
            return self._generate(job)
        if job["kind"] == "chats":
            return serve_chats(job)
        raise CannotRun(f"octavo has no {job['kind']}")

    def _generate(self, job: Job) -> Result:
        engine, resolved = self._engine_for(generate_order(job))
        prompts = draw_prompts(job)
        params = SamplingParams(
            max_tokens=job["output_tokens"] + (SLACK_TOKENS if job["users"] > 1 else 0),
            temperature=0.0,
            ignore_eos=True,
        )
        written: dict[str, int] = {}
        window = DecodeWindow(sum(map(len, prompts)), job["output_tokens"] - 1, time.perf_counter())
        for prompt in prompts:
            self._requests += 1
            request = Request(id=f"job-{self._requests}", prompt=prompt, params=params, seed=job["seed"])
            written[request.id] = 0
            engine.add(request)
        while window.open and not engine.idle:
            step(engine, written)
            window.note(written.values(), time.perf_counter())
        complete = not window.open
        for request_id in written:
            engine.abort(request_id)
        while not engine.idle:
            engine.step()
        if not complete:
            raise CannotRun("a sequence ended before all had written together: raise --chunk")
        return {"figures": window.figures(), "settings": decided(resolved), "versions": {"octavo": __version__}}

    def _engine_for(self, order: BuildOrder) -> tuple[Engine, Resolved]:
        if self._engine is None or self._resolved is None or self._order != order:
            self._engine = None  # free its memory before the next one takes some
            self._engine, self._resolved = build_engine(msgspec.to_builtins(order), lambda *_: None)
            self._order = order
        return self._engine, self._resolved


def generate_order(job: Job) -> BuildOrder:
    """An engine with room for exactly this job."""
    users = job["users"]
    options = {
        **_options(job),
        "threads": job["threads"],
        "max_running": users,
        "chunk": job["settings"]["chunk"],
        "max_len": max(32, job["prompt_tokens"] + job["output_tokens"] + SLACK_TOKENS),
        "prefix_cache": job["keep_prompts"],
    }
    return BuildOrder(config=engine_config(options), path=job["model"], eos_ids=[])


def _options(job: Job) -> dict[str, Any]:
    settings = job["settings"]
    return {**job["options"], **({"kv_dtype": settings["kv"]} if "kv" in settings else {})}


def step(engine: Engine, written: dict[str, int]) -> None:
    for output in engine.step():
        if output.error is not None:
            raise CannotRun(f"the engine gave a request up: {output.error.message}")
        if output.request_id in written:
            written[output.request_id] += len(output.tokens)


def decided(resolved: Resolved) -> dict[str, Any]:
    return {"backend": resolved.backend, "dtype": resolved.dtype, "threads": resolved.threads}


def serve_chats(job: Job) -> Result:
    """The chats over HTTP, against a server that is started for them. Its start is not counted."""
    options: Mapping[str, Any] = {
        **_options(job),
        "threads": job["threads"],
        "max_running": len(job["lengths"]),
        "model": job["model"],
    }
    with ServerProcess(arguments_of(engine_config(options))) as server:
        figures = load_figures(inspect_target(server.base_url, seed=job["seed"]), job)
    settings = {"threads": options["threads"], "over": "HTTP"}
    return {"figures": figures, "settings": settings, "versions": {"octavo": __version__}}


def load_figures(target: Target, job: Job) -> dict[str, float | int]:
    """The job's chats, as words, against any OpenAI server. CannotRun when any of them fails."""
    rng = random.Random(job["seed"])
    chats = [
        [Chat(random_words(rng, target.scale.words_for(prompt)), prompt, output) for prompt, output in own]
        for own in job["lengths"]
    ]
    exchanges, wall_s = run_load(target, chats, lambda _: None)
    failed = [exchange.error for exchange in exchanges if exchange.error is not None]
    if failed:
        raise CannotRun(f"{len(failed)} of {len(exchanges)} chats failed: {failed[0]}")
    return {"output_tokens": sum(exchange.output_tokens for exchange in exchanges), "wall_s": wall_s}


if __name__ == "__main__":
    serve_jobs(OwnContender().run)
