"""OpenVINO GenAI as a contender: its ContinuousBatchingPipeline, which has paged attention and reads GGUF files,
stepped by hand in this process. Runs in the interpreter that has the package.

Settings: `kv` (f16, u8 or bf16), `batch` (max_num_batched_tokens).
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai
from inputs import SLACK_TOKENS, DecodeWindow, draw_chats, draw_prompts
from job_loop import CannotRun, Job, Result, serve_jobs

CACHE_GB = 4
KV_TYPES = {"f16": openvino.Type.f16, "u8": openvino.Type.u8, "bf16": openvino.Type.bf16}

pipelines: dict[tuple[Any, ...], Any] = {}


class Sequence:
    """A request under way, and how many tokens it has written."""

    def __init__(self, pipeline: Any, number: int, prompt: list[int], output_tokens: int) -> None:
        config = genai.GenerationConfig()
        config.max_new_tokens = output_tokens
        config.ignore_eos = True
        config.do_sample = False
        self.asked = output_tokens
        self.written = 0
        ids = openvino.Tensor(np.array([prompt], dtype=np.int64))
        self.handle = pipeline.add_request(number, ids, config)

    def read(self) -> None:
        while self.handle.can_read():
            self.written += sum(len(output.generated_ids) for output in self.handle.read().values())


def run(job: Job) -> Result:
    settings = job["settings"]
    key = (job["model"], job["threads"], *sorted(settings.items()))
    if key not in pipelines:
        pipelines[key] = open_pipeline(job, settings)
    try:
        if job["kind"] == "generate":
            figures = generate(pipelines[key], job)
        elif job["kind"] == "chats":
            figures = answer_chats(pipelines[key], job)
        else:
            raise CannotRun(f"OpenVINO GenAI has no {job['kind']}")
    finally:
        if not job["keep"]:
            del pipelines[key]
    versions = {"openvino-genai": genai.__version__, "openvino": openvino.__version__}
    return {"figures": figures, "settings": settings, "versions": versions}


def open_pipeline(job: Job, settings: dict[str, Any]) -> Any:
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = CACHE_GB
    scheduler.max_num_batched_tokens = settings.get("batch", 2048)
    scheduler.max_num_seqs = 256
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = bool(job.get("keep_prompts"))
    properties = {"INFERENCE_NUM_THREADS": job["threads"], "KV_CACHE_PRECISION": KV_TYPES[settings["kv"]]}
    pipeline = genai.ContinuousBatchingPipeline(job["model"], scheduler, "CPU", properties)
    warm_up = {"users": 2, "prompt_tokens": 64, "output_tokens": 4, "vocab": job["vocab"], "seed": job["seed"] + 1}
    generate(pipeline, warm_up)  # compiles what the first step would
    return pipeline


def generate(pipeline: Any, job: Job) -> dict[str, float | int]:
    prompts = draw_prompts(job)
    began = time.perf_counter()
    asked = job["output_tokens"] + (SLACK_TOKENS if job["users"] > 1 else 0)
    sequences = [Sequence(pipeline, number, prompt, asked) for number, prompt in enumerate(prompts)]
    window = DecodeWindow(sum(map(len, prompts)), job["output_tokens"] - 1, began)
    while window.open and pipeline.has_non_finished_requests():
        pipeline.step()
        for sequence in sequences:
            sequence.read()
        window.note((sequence.written for sequence in sequences), time.perf_counter())
    for sequence in sequences:
        sequence.handle.cancel()
    while pipeline.has_non_finished_requests():
        pipeline.step()
    if window.open:
        raise CannotRun("a sequence ended before all had written together")
    return window.figures()


def answer_chats(pipeline: Any, job: Job) -> dict[str, float | int]:
    """Every user asks its next chat when the last one is answered."""
    waiting = [deque(own) for own in draw_chats(job)]
    active: dict[int, Sequence] = {}
    number = output_tokens = 0
    began = time.perf_counter()
    while active or any(waiting):
        for user, own in enumerate(waiting):
            if own and user not in active:
                active[user] = Sequence(pipeline, number, *own.popleft())
                number += 1
        pipeline.step()
        for user, sequence in list(active.items()):
            sequence.read()
            if sequence.written >= sequence.asked:
                output_tokens += sequence.written
                del active[user]
    return {"output_tokens": output_tokens, "wall_s": time.perf_counter() - began}


if __name__ == "__main__":
    serve_jobs(run)
