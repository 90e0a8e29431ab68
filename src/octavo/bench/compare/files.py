"""The model under comparison, in the formats that the rows ask for. Other formats of a GGUF file are made by the
quantiser of llama.cpp and kept in a scratch directory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from octavo.bench.compare.contender import ContenderFailed, JobFailed
from octavo.bench.compare.workloads import AS_GIVEN
from octavo.checkpoint.gguf_file import gguf_in
from octavo.checkpoint.open import open_checkpoint
from octavo.errors import BenchError
from octavo.models.registry import model_facts

Quantize = Callable[[Path, Path, str], None]  # source, target, format


class NoSuchFormat(BenchError):
    """The model cannot be had in a format; the message says why."""


@dataclass(frozen=True, slots=True)
class ModelSize:
    """What prompts must keep to: ids below `vocab`, and at most `context_length` tokens with their answer."""

    vocab: int
    context_length: int


def read_size(model: Path) -> ModelSize:
    """CheckpointError or UnsupportedModel when Octavo cannot read the model."""
    source = open_checkpoint(model)
    try:
        facts = model_facts(source.config)
    finally:
        source.close()
    return ModelSize(facts.vocab_size, facts.context_length)


class ModelFiles:
    """`model` is a file or a directory; a directory with one GGUF file stands for that. `quantize` makes a file in
    another format, or is None where nothing here can. It may raise JobFailed or ContenderFailed."""

    def __init__(self, model: Path, scratch: Path, quantize: Quantize | None) -> None:
        self.path = (gguf_in(model) if model.is_dir() else None) or model
        self._scratch = scratch
        self._quantize = quantize
        self._failed: dict[str, str] = {}

    def path_of(self, format: str) -> Path:
        """The model's file in a format, made on the first request. NoSuchFormat when that cannot be."""
        if format == AS_GIVEN:
            return self.path
        if format in self._failed:
            raise NoSuchFormat(self._failed[format])
        target = self._scratch / f"{self.path.stem}-{self._identity()}-{format}.gguf"
        if not target.exists():
            self._make(target, format)
        return target

    def _make(self, target: Path, format: str) -> None:
        part = target.with_suffix(f".{os.getpid()}.part")
        try:
            if self._quantize is None or self.path.is_dir():
                raise NoSuchFormat(f"a {format} file is made by llama.cpp, from a GGUF file only")
            self._scratch.mkdir(parents=True, exist_ok=True)
            self._quantize(self.path, part, format)
            part.replace(target)
        except (NoSuchFormat, JobFailed, ContenderFailed, OSError) as error:
            self._failed[format] = f"no {format} file: {error}"
            raise NoSuchFormat(self._failed[format]) from error
        finally:
            part.unlink(missing_ok=True)

    def _identity(self) -> str:
        """Changes when the file does."""
        status = self.path.stat()
        key = f"{self.path.resolve()} {status.st_size} {status.st_mtime_ns}"
        return hashlib.sha256(key.encode()).hexdigest()[:10]
