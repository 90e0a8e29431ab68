"""transformers as a contender: `generate` in bfloat16, static batches, reading GGUF files by dequantising them. Runs in
the interpreter that has transformers, torch and gguf. Takes no settings.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import transformers
from inputs import draw_chats, draw_prompts
from job_loop import CannotRun, Job, Result, serve_jobs

models: dict[str, Any] = {}


class Clock(transformers.StoppingCriteria):
    """Notes the time after every token, and never stops anything."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, input_ids: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        self.times.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def run(job: Job) -> Result:
    torch.set_num_threads(job["threads"])
    path = Path(job["model"])
    if job["model"] not in models:
        models[job["model"]] = load(path)
    if job["kind"] == "generate":
        figures = generate(models[job["model"]], job)
    elif job["kind"] == "chats":
        figures = answer_chats(models[job["model"]], job)
    else:
        raise CannotRun(f"transformers has no {job['kind']}")
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    return {"figures": figures, "settings": {"dtype": "bfloat16"}, "versions": versions}


def load(path: Path) -> Any:
    if path.is_dir():
        model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.bfloat16
        )
    model.generation_config.eos_token_id = None  # answers have the lengths asked for
    model.generation_config.pad_token_id = 0
    model.eval()
    write(model, [[1] * 64] * 2, 4)  # the first call sets itself up
    return model


def write(model: Any, prompts: list[list[int]], output_tokens: int) -> list[float]:
    """Continue a batch of prompts, padded on the left. The times after each token."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    clock = Clock()
    with torch.inference_mode():
        model.generate(
            ids,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=output_tokens,
            stopping_criteria=transformers.StoppingCriteriaList([clock]),
        )
    return clock.times


def generate(model: Any, job: Job) -> dict[str, float | int]:
    prompts = draw_prompts(job)
    began = time.perf_counter()
    times = write(model, prompts, job["output_tokens"])
    return {
        "prefill_tokens": sum(map(len, prompts)),
        "prefill_s": times[0] - began,
        "decode_tokens": len(prompts) * (len(times) - 1),
        "decode_s": times[-1] - times[0],
    }


def answer_chats(model: Any, job: Job) -> dict[str, float | int]:
    """One batch for the first chat of every user, one for the second, and so on; each lasts as long as its longest."""
    users = draw_chats(job)
    output_tokens = 0
    began = time.perf_counter()
    for batch in zip(*users, strict=True):
        write(model, [prompt for prompt, _ in batch], max(output for _, output in batch))
        output_tokens += sum(output for _, output in batch)
    return {"output_tokens": output_tokens, "wall_s": time.perf_counter() - began}


if __name__ == "__main__":
    serve_jobs(run)
