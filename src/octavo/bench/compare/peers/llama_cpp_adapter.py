"""llama.cpp as a contender, through the low-level API of `llama-cpp-python`: many sequences in one llama_decode call,
greedy. Also makes other formats of a GGUF file. Runs in the interpreter that has the package.

Settings: `flash` (flash attention), `kv` (f16 or q8_0), `ubatch`.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field
from typing import Any

import llama_cpp as llama
import numpy as np
from inputs import draw_prompts
from job_loop import CannotRun, Job, Result, serve_jobs

BATCH = 2048
CELLS = 256  # llama.cpp rounds each sequence's context up to a multiple of this
KV_TYPES = {"f16": llama.GGML_TYPE_F16, "q8_0": llama.GGML_TYPE_Q8_0}
FILE_TYPES = {
    "Q4_0": llama.LLAMA_FTYPE_MOSTLY_Q4_0,
    "Q4_1": llama.LLAMA_FTYPE_MOSTLY_Q4_1,
    "Q8_0": llama.LLAMA_FTYPE_MOSTLY_Q8_0,
    "BF16": llama.LLAMA_FTYPE_MOSTLY_BF16,
}


@dataclass
class Session:
    """A model and a context for `users` sequences. `first` holds each one's first token once the prompts are read."""

    model: Any
    context: Any
    batch: Any
    vocab: int
    first: list[int] = field(default_factory=list)

    def close(self) -> None:
        llama.llama_batch_free(self.batch)
        llama.llama_free(self.context)
        llama.llama_model_free(self.model)


sessions: dict[tuple[Any, ...], Session] = {}


def run(job: Job) -> Result:
    if job["kind"] == "quantize":
        return quantize(job)
    if job["kind"] != "generate":
        raise CannotRun(f"llama.cpp has no {job['kind']} in process")
    settings = job["settings"]
    key = (job["model"], job["threads"], job["users"], job["prompt_tokens"], *sorted(settings.items()))
    if key not in sessions:
        sessions[key] = open_session(job, settings)
    try:
        figures = generate(sessions[key], job)
    finally:
        if not job["keep"]:
            sessions.pop(key).close()
    return {"figures": figures, "settings": settings, "versions": versions()}


def versions() -> dict[str, str]:
    return {"llama-cpp-python": llama.__version__, "numpy": np.__version__}


def quantize(job: Job) -> Result:
    """Write job["model"] in another format to job["target"]."""
    params = llama.llama_model_quantize_default_params()
    params.ftype = FILE_TYPES[job["format"]]
    params.nthread = job["threads"]
    params.allow_requantize = True
    if llama.llama_model_quantize(job["model"].encode(), job["target"].encode(), ctypes.byref(params)) != 0:
        raise CannotRun(f"llama_model_quantize failed to make {job['format']} of {job['model']}")
    return {"figures": {}, "settings": {}, "versions": versions()}


def open_session(job: Job, settings: dict[str, Any]) -> Session:
    model_params = llama.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model = llama.llama_model_load_from_file(job["model"].encode(), model_params)
    if not model:
        raise CannotRun(f"llama.cpp cannot load {job['model']}")
    users = job["users"]
    per_sequence = -(-(job["prompt_tokens"] + job["output_tokens"]) // CELLS) * CELLS
    params = llama.llama_context_default_params()
    params.n_ctx = users * per_sequence
    params.n_seq_max = users
    params.n_batch = BATCH
    params.n_ubatch = settings.get("ubatch", 512)
    params.n_threads = params.n_threads_batch = job["threads"]
    params.flash_attn_type = int(settings["flash"])
    params.type_k = params.type_v = KV_TYPES[settings["kv"]]
    context = llama.llama_init_from_model(model, params)
    if not context:
        llama.llama_model_free(model)
        raise CannotRun(f"llama.cpp refuses a context of {params.n_ctx} tokens with {settings}")
    vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    session = Session(model, context, llama.llama_batch_init(max(BATCH, users), 0, 1), vocab)
    decode(session, [(0, 0, 0, True)])  # touches every weight once; generate() forgets the token
    return session


def generate(session: Session, job: Job) -> dict[str, float | int]:
    """Read the prompts, write `output_tokens` each. With `keep_prompts` they are read once: later jobs forget what was
    written and write again, and all sequences are copies of the first."""
    users, length, steps = job["users"], job["prompt_tokens"], job["output_tokens"] - 1
    memory = llama.llama_get_memory(session.context)
    began = time.perf_counter()
    if session.first and job["keep_prompts"]:
        for user in range(users):
            llama.llama_memory_seq_rm(memory, user, length, -1)
    else:
        llama.llama_memory_clear(memory, False)
        prompts = draw_prompts(job)
        session.first = read_copies(session, prompts) if job["keep_prompts"] else read(session, prompts)
    tokens = session.first
    prefilled = time.perf_counter()
    for step in range(steps):
        rows = [(token, length + step, user, True) for user, token in enumerate(tokens)]
        tokens = decode(session, rows)
    decoded = time.perf_counter()
    return {
        "prefill_tokens": users * length,
        "prefill_s": prefilled - began,
        "decode_tokens": users * steps,
        "decode_s": decoded - prefilled,
    }


def read(session: Session, prompts: list[list[int]]) -> list[int]:
    """Compute the prompts, BATCH tokens a call. Returns the first token of each sequence."""
    rows = [
        (token, position, user, position == len(prompt) - 1)
        for user, prompt in enumerate(prompts)
        for position, token in enumerate(prompt)
    ]
    first: list[int] = []
    for start in range(0, len(rows), BATCH):
        first += decode(session, rows[start : start + BATCH])
    return first


def read_copies(session: Session, prompts: list[list[int]]) -> list[int]:
    """As `read`, but of the first prompt, copied into the memory of every other sequence."""
    first = read(session, prompts[:1])
    memory = llama.llama_get_memory(session.context)
    for user in range(1, len(prompts)):
        llama.llama_memory_seq_cp(memory, 0, user, -1, -1)
    return first * len(prompts)


def decode(session: Session, rows: list[tuple[int, int, int, bool]]) -> list[int]:
    """One llama_decode of (token, position, sequence, wanted) rows; the most likely token after each wanted one."""
    batch = session.batch
    batch.n_tokens = len(rows)
    for index, (token, position, user, wanted) in enumerate(rows):
        batch.token[index] = token
        batch.pos[index] = position
        batch.n_seq_id[index] = 1
        batch.seq_id[index][0] = user
        batch.logits[index] = wanted
    if (code := llama.llama_decode(session.context, batch)) != 0:
        raise CannotRun(f"llama_decode of {len(rows)} tokens returned {code}")
    wanted_rows = [index for index, row in enumerate(rows) if row[3]]
    return [best_token(session, index) for index in wanted_rows]


def best_token(session: Session, index: int) -> int:
    logits = llama.llama_get_logits_ith(session.context, index)
    return int(np.ctypeslib.as_array(logits, shape=(session.vocab,)).argmax())


if __name__ == "__main__":
    llama.llama_backend_init()
    serve_jobs(run)
