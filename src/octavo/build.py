"""From what the user said to an engine that runs: open the checkpoint, choose a backend, decide (resolve), load,
allocate. The one place where configuration, checkpoint, model, runner and core meet.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from octavo.checkpoint.open import open_checkpoint
from octavo.checkpoint.source import WeightSource
from octavo.config import EngineConfig, Resolved, check_threads, format_bytes, resolve
from octavo.core.block_pool import BlockPool
from octavo.core.engine import Engine
from octavo.core.kv_spec import KVSpec
from octavo.core.scheduler import Scheduler
from octavo.errors import ConfigError
from octavo.models.registry import model_class, model_facts
from octavo.ops.backend import Backend
from octavo.ops.choose import Wish, choose_backend
from octavo.quant.formats import FORMATS
from octavo.runner.cores import usable_cores
from octavo.runner.free_memory import free_memory
from octavo.runner.kv_cache import allocate_kv, kv_spec
from octavo.runner.runner import ModelRunner

Progress = Callable[[str, int, int], None]  # label, bytes done, bytes in all

T = TypeVar("T")

log = logging.getLogger(__name__)


class BuildOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What `build_engine` is asked for: the options, where the model lies, and the tokens that end an answer."""

    config: EngineConfig
    path: str
    eos_ids: list[int]


def engine_config(options: Mapping[str, Any]) -> EngineConfig:
    """EngineConfig from names and values, with their types checked. ConfigError says what is wrong."""
    return _convert(options, EngineConfig)


def build_engine(payload: Mapping[str, Any], progress: Progress) -> tuple[Engine, Resolved]:
    """Load a model and return an engine that is ready to take requests, and what was decided on the way.

    `payload` holds the fields of BuildOrder as builtins, so that it can cross a pipe. The weights are converted
    tensor by tensor, and the checkpoint is unmapped before this returns: there is never a second copy of them.
    CheckpointError or UnsupportedModel for the checkpoint, ConfigError for what this machine or these options
    do not allow, memory included.
    """
    order = _convert(payload, BuildOrder)
    source = open_checkpoint(order.path)
    try:
        return _build(order, source, progress)
    finally:
        source.close()


def _build(order: BuildOrder, source: WeightSource, progress: Progress) -> tuple[Engine, Resolved]:
    config = order.config
    facts = model_facts(source.config)
    formats = frozenset(format for format, _ in source.stored)
    cores = usable_cores()
    check_threads(config, cores)
    wish = Wish(config.dtype, config.threads, cores, config.kv_dtype, config.quantize)
    backend, passed_over = choose_backend(config.backend, wish, formats, facts.head_dim, config.block_size)
    for reason in passed_over:
        log.warning("the %s backend serves, though a faster one exists. Not used: %s", backend.name, reason)
    if config.quantize is not None and not _has_plain_matrix(source):
        log.warning("--quantize %s changes nothing: this checkpoint is quantised already", config.quantize)
    spec = kv_spec(facts, config.block_size, backend)
    number = backend.activation_bytes
    max_tokens = config.max_running + config.chunk
    scratch = max_tokens * facts.scratch_per_token + config.max_running * facts.vocab_size
    resolved = resolve(
        config,
        spec=spec,
        context_length=facts.context_length,
        vocab=facts.vocab_size,
        weight_bytes=_weight_bytes(source, backend),
        free_bytes=free_memory() - scratch * number,
        backend=backend.name,
        dtype=backend.dtype,
        threads=backend.threads,
        passed_over=passed_over,
    )
    try:
        runner = _load(order, source, backend, spec, resolved, progress)
    except MemoryError as error:
        raise ConfigError(
            f"out of memory while loading: {format_bytes(resolved.weight_bytes)} of weights, "
            f"{format_bytes(resolved.kv_bytes)} of KV cache and {format_bytes(scratch * number)} of buffers were "
            "planned. Close other programs, lower --kv-memory, --max-running or --chunk, or choose a smaller model"
        ) from error
    pool = BlockPool(resolved.blocks, resolved.block_size, caching=resolved.prefix_cache)
    scheduler = Scheduler(pool, resolved.limits, order.eos_ids)
    return Engine(scheduler, runner, debug=config.debug), resolved


def _load(
    order: BuildOrder,
    source: WeightSource,
    backend: Backend,
    spec: KVSpec,
    resolved: Resolved,
    progress: Progress,
) -> ModelRunner:
    label = f"Loading {Path(order.path).name}"
    max_tokens = resolved.rows + resolved.chunk
    model = model_class(source.config).load(
        source.config,
        source,
        backend,
        max_tokens,
        max_logits=resolved.rows,
        context_length=resolved.max_len,
        progress=lambda done, total: progress(label, done, total),
    )
    return ModelRunner(
        model,
        backend,
        allocate_kv(backend, spec, resolved.blocks),
        rows=resolved.rows,
        max_tokens=max_tokens,
        max_len=resolved.max_len,
        block_size=resolved.block_size,
    )


def _has_plain_matrix(source: WeightSource) -> bool:
    return any(FORMATS[format].plain and len(shape) > 1 for format, shape in source.stored)


def _weight_bytes(source: WeightSource, backend: Backend) -> int:
    return sum(backend.packed_bytes(format, shape) for format, shape in source.stored)


def _convert(values: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the options do not fit: {error}") from None
