"""Configuration: what the user says (EngineConfig, ServerConfig) and what was decided from it (Resolved).

Each option is defined once, here; command-line flags, `--help` and the table in docs/configuration.md are made
from these definitions. `resolve()` is pure: it takes numbers and returns numbers with reasons. Nothing below it
reads configuration.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from octavo.core.admission import Limits
from octavo.core.kv_spec import BLOCK_SIZES, DEFAULT_BLOCK_SIZE, KVSpec
from octavo.errors import ConfigError

DEFAULT_MODEL = "smollm2"
# Share of the memory that is free once the weights are loaded; the rest stays with the user's other programs.
AUTO_KV_SHARE = 0.25
MIN_CONTEXT = 32
KV_DTYPES = ("auto", "bf16", "int8")
QUANTIZE = ("q8", "q4")
MAX_THREADS = 1024
MAX_THREADS_PER_CORE = 4  # already far more than helps
MAX_COUNT = 2**31  # of anything else: beyond every machine, and within what a message can carry

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the user says about the engine. Defaults suit a laptop."""

    model: Annotated[
        str, Meta(description="A name from `octavo list`, a directory, a .gguf file, or a hub id (org/name).")
    ] = DEFAULT_MODEL
    max_len: Annotated[
        int | None, Meta(description="Longest context of one chat in tokens. Default: what the model allows and fits.")
    ] = None
    kv_memory: Annotated[
        str | None, Meta(description="Memory of the KV cache, such as 2GiB. Default: a quarter of what is free.")
    ] = None
    block_size: Annotated[int, Meta(description="Tokens in one KV block: 8, 16 or 32.")] = DEFAULT_BLOCK_SIZE
    max_running: Annotated[int, Meta(description="Chats computed at once; more of them wait their turn.")] = 64
    chunk: Annotated[
        int, Meta(description="Prompt tokens computed in one step; less makes the others' answers smoother.")
    ] = 256
    queue: Annotated[int, Meta(description="Requests that may wait; more are turned away with 429.")] = 1024
    watermark: Annotated[
        float, Meta(description="Share of the KV blocks that admission leaves free for chats that grow.")
    ] = 0.01
    prefix_cache: Annotated[bool, Meta(description="Reuse the KV blocks of prompts that begin alike.")] = True
    backend: Annotated[str, Meta(description="Which implementation computes: auto, native or reference.")] = "auto"
    dtype: Annotated[
        str, Meta(description="Number format of activations: auto, bfloat16 (native), float32 or float64 (reference).")
    ] = "auto"
    kv_dtype: Annotated[
        str,
        Meta(description="Number format of the KV cache: auto, bf16, or int8 for twice the tokens in the same memory."),
    ] = "auto"
    quantize: Annotated[
        str | None, Meta(description="Pack an unquantised checkpoint in fewer bits while loading: q8 or q4.")
    ] = None
    threads: Annotated[int | None, Meta(description="Threads that compute. Default: what suits the backend.")] = None
    offline: Annotated[bool, Meta(description="Open no outbound connection at all.")] = False
    debug: Annotated[bool, Meta(description="Check every invariant of the KV pool whenever the engine is idle.")] = (
        False
    )

    def __post_init__(self) -> None:
        if self.block_size not in BLOCK_SIZES:
            raise ConfigError(f"--block-size must be one of {', '.join(map(str, BLOCK_SIZES))}, got {self.block_size}")
        for name, value in (("max-running", self.max_running), ("chunk", self.chunk), ("queue", self.queue)):
            if not 1 <= value <= MAX_COUNT:
                raise ConfigError(f"--{name} must lie between 1 and {MAX_COUNT}, got {value}")
        if self.threads is not None and not 1 <= self.threads <= MAX_THREADS:
            raise ConfigError(f"--threads must lie between 1 and {MAX_THREADS}, got {self.threads}")
        if self.max_len is not None and not MIN_CONTEXT <= self.max_len <= MAX_COUNT:
            raise ConfigError(f"--max-len must lie between {MIN_CONTEXT} and {MAX_COUNT}, got {self.max_len}")
        if not 0.0 <= self.watermark < 1.0:
            raise ConfigError(f"--watermark must lie in [0, 1), got {self.watermark}")
        if self.kv_memory is not None:
            parse_bytes(self.kv_memory)
        if self.kv_dtype not in KV_DTYPES:
            raise ConfigError(f"--kv-dtype must be one of {', '.join(KV_DTYPES)}, got {self.kv_dtype}")
        if self.quantize is not None and self.quantize not in QUANTIZE:
            raise ConfigError(f"--quantize must be one of {', '.join(QUANTIZE)}, got {self.quantize}")


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the user says about the HTTP server."""

    host: Annotated[str, Meta(description="Address to listen on. 0.0.0.0 serves the whole network.")] = "127.0.0.1"
    port: Annotated[int, Meta(description="Port to listen on.")] = 8000
    served_name: Annotated[
        str | None,
        Meta(description="The model's name in the API. Default: as it was started, or the last part of a path."),
    ] = None
    max_body: Annotated[str, Meta(description="Largest request body, such as 8MiB.")] = "8MiB"
    drain: Annotated[float, Meta(description="Seconds that running answers get to finish after Ctrl-C.")] = 30.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"--port must lie between 0 and 65535, got {self.port}")
        if not 0 <= self.drain < math.inf:
            raise ConfigError(f"--drain must be a number of seconds that is not negative, got {self.drain}")
        parse_bytes(self.max_body)


class Decision(msgspec.Struct, frozen=True, array_like=True):
    """One line of the plan that is printed on start: what was decided, and why."""

    name: str
    value: str
    reason: str


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided. Only numbers and names; travels from the engine to the front end."""

    backend: str
    dtype: str
    threads: int
    weight_bytes: int
    block_size: int
    blocks: int
    bytes_per_token: int
    max_len: int
    vocab: int
    rows: int
    chunk: int
    queue: int
    watermark_blocks: int
    prefix_cache: bool
    decisions: list[Decision]

    @property
    def kv_tokens(self) -> int:
        return self.blocks * self.block_size

    @property
    def kv_bytes(self) -> int:
        return self.kv_tokens * self.bytes_per_token

    @property
    def limits(self) -> Limits:
        return Limits(
            rows=self.rows,
            chunk=self.chunk,
            max_len=self.max_len,
            vocab=self.vocab,
            queue=self.queue,
            watermark=self.watermark_blocks,
        )


def resolve(
    config: EngineConfig,
    *,
    spec: KVSpec,
    context_length: int,
    vocab: int,
    weight_bytes: int,
    free_bytes: int,
    backend: str,
    dtype: str,
    threads: int,
    passed_over: Sequence[str] = (),
) -> Resolved:
    """Decide everything that depends on model and machine. `free_bytes` is memory free before loading, less
    the buffers of a step, `threads` how many compute, `passed_over` why better backends do not serve.

    ConfigError, with the numbers and what to change, when not even one short chat fits.
    """
    if config.max_len is not None and config.max_len > context_length:
        raise ConfigError(f"--max-len {config.max_len} exceeds the {context_length} tokens this model was made for")
    if context_length < MIN_CONTEXT:
        raise ConfigError(f"this model was made for {context_length} tokens; Octavo needs {MIN_CONTEXT} at least")
    wanted = config.max_len or context_length
    blocks, kv_reason = _kv_blocks(config, spec, wanted, weight_bytes, free_bytes)
    tokens = blocks * spec.block_size
    max_len = min(wanted, tokens)
    if max_len < wanted:
        len_reason = "the KV cache holds no more; raise --kv-memory for longer chats"
    else:
        len_reason = "--max-len" if config.max_len is not None else "the model's own limit"
    thread_reason = "--threads" if config.threads is not None else "what suits the backend on this machine"
    return Resolved(
        backend=backend,
        dtype=dtype,
        threads=threads,
        weight_bytes=weight_bytes,
        block_size=spec.block_size,
        blocks=blocks,
        bytes_per_token=spec.bytes_per_token,
        max_len=max_len,
        vocab=vocab,
        rows=config.max_running,
        chunk=config.chunk,
        queue=config.queue,
        watermark_blocks=max(1, int(blocks * config.watermark)),
        prefix_cache=config.prefix_cache,
        decisions=[
            Decision("weights", format_bytes(weight_bytes), f"{backend} backend, {dtype}"),
            Decision("KV cache", format_bytes(blocks * spec.bytes_per_block), kv_reason),
            Decision(
                "KV blocks", f"{blocks} x {spec.block_size} tokens", f"{format_bytes(spec.bytes_per_token)} per token"
            ),
            Decision("context", f"{max_len} tokens", len_reason),
            Decision("room", f"{tokens} tokens", _room_reason(tokens, max_len, config.max_running)),
            Decision("threads", str(threads), thread_reason),
            *(Decision("passed over", *reason.split(": ", 1)) for reason in passed_over),
        ],
    )


def check_threads(config: EngineConfig, cores: int) -> None:
    """ConfigError when --threads is out of all proportion to the `cores` that this process may use."""
    limit = MAX_THREADS_PER_CORE * cores
    if config.threads is not None and config.threads > limit:
        raise ConfigError(
            f"--threads {config.threads} on {cores} usable core(s): more threads than cores only wait for each other. "
            f"The limit here is {limit}; leave --threads out for what suits this machine"
        )


def parse_bytes(text: str) -> int:
    """ "512MiB", "2GB" or a plain number to bytes; K, M, G and T are powers of 1024. ConfigError otherwise."""
    match = re.fullmatch(r"\s*(\d{1,20}(?:\.\d{1,20})?)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if match is None:
        raise ConfigError(f"{text!r:.60} is not an amount of memory: write it like 512MiB or 2GiB")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def format_bytes(count: int) -> str:
    """1536 -> "1.5 KiB"."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _kv_blocks(config: EngineConfig, spec: KVSpec, context: int, weight_bytes: int, free_bytes: int) -> tuple[int, str]:
    """How many KV blocks, and why. ConfigError when the memory does not suffice."""
    after_weights = free_bytes - weight_bytes
    if free_bytes <= 0:
        raise ConfigError(
            f"the buffers of a step need {format_bytes(-free_bytes)} more than the memory that is free: lower "
            "--max-running or --chunk, or close other programs"
        )
    if after_weights <= 0:
        raise ConfigError(
            f"the weights need {format_bytes(weight_bytes)} and {format_bytes(free_bytes)} of memory are free: "
            "close other programs, or choose a smaller model"
        )
    if config.kv_memory is not None:
        asked = parse_bytes(config.kv_memory)
        if asked > after_weights:
            raise ConfigError(
                f"--kv-memory {config.kv_memory} exceeds the {format_bytes(after_weights)} that are free beside the "
                f"weights ({format_bytes(weight_bytes)})"
            )
        blocks, reason = spec.blocks_in(asked), f"--kv-memory {config.kv_memory}"
    else:
        blocks = spec.blocks_in(int(after_weights * AUTO_KV_SHARE))
        reason = f"{AUTO_KV_SHARE:.0%} of the memory free beside the weights"
        useful = config.max_running * spec.blocks_for(context)  # more could never be used
        if blocks > useful:
            blocks, reason = useful, f"{config.max_running} chats of {context} tokens need no more"
    if blocks * spec.block_size < MIN_CONTEXT:
        raise ConfigError(
            f"the KV cache would hold {blocks * spec.block_size} tokens and needs {MIN_CONTEXT} at least "
            f"({format_bytes(spec.bytes_per_block)} per block of {spec.block_size}): raise --kv-memory or free memory"
        )
    return blocks, reason


def _room_reason(tokens: int, max_len: int, max_running: int) -> str:
    lengths = [max_len, 512] if max_len > 512 else [max_len]
    chats = [f"{min(max_running, tokens // length)} chats of {length}" for length in lengths]
    return f"{' or '.join(chats)} tokens at once"
