"""A tiny model's recorded step, replayed with any of the rewrites over caches and buffers full of garbage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from octavo.checkpoint.open import open_checkpoint
from octavo.models.registry import model_class
from octavo.ops.backend import Batch, StepLimits
from octavo.ops.conformance_cases import lay_out_batch
from octavo.ops.native.abi import OpKind
from octavo.ops.native.arrays import Rows
from octavo.ops.native.backend import NativeBackend
from octavo.ops.native.cache import NativeKV
from octavo.ops.native.program import ActivationRows, Instruction, Recording, Replay

BLOCK = 16
LIMITS = StepLimits(rows=3, tokens=96, draws=96, length=160)
TABLES = np.random.default_rng(0).permutation(3 * 10).reshape(3, 10)

Rewrite = Callable[[list[Instruction], int], list[Instruction]]

# Per step, the (first position, count) of each of three sequences: a prefill, chunks among decodes, decodes alone.
STEPS: list[list[tuple[int, int]]] = [
    [(0, 70), (0, 1), (0, 15)],
    [(70, 1), (1, 40), (15, 33)],
    [(71, 1), (41, 1), (48, 1)],
]


def record(
    backend: NativeBackend, forward: Callable[[Batch, list[NativeKV]], Rows], kv: list[NativeKV]
) -> tuple[list[Instruction], Rows]:
    """The instructions of a forward pass as the model called them, and where its result lies."""
    recording = Recording(LIMITS)
    immediate, backend._sink = backend._sink, recording
    try:
        return recording.instructions, forward(recording.batch(), kv)
    finally:
        backend._sink = immediate


def kinds(instructions: Sequence[Instruction]) -> list[OpKind]:
    return [OpKind(instruction.op.kind) for instruction in instructions]


def buffers(kept: object) -> list[np.ndarray]:
    """The memory of all Rows and ActivationRows in what instructions keep alive."""
    if isinstance(kept, tuple):
        return [memory for part in kept for memory in buffers(part)]
    return [kept.memory] if isinstance(kept, Rows | ActivationRows) else []


class RecordedModel:
    """A loaded model, its recorded step, and what comes out of STEPS under a rewrite."""

    def __init__(self, path: Path, backend: NativeBackend) -> None:
        source = open_checkpoint(path)
        self.backend = backend
        self.model = model_class(source.config).load(source.config, source, backend, LIMITS.tokens)
        source.close()
        self.kv = [
            backend.allocate_kv(TABLES.size, BLOCK, self.model.kv_heads, self.model.head_dim)
            for _ in range(self.model.kv_layers)
        ]
        self.instructions, self.result = record(backend, self.model.forward, self.kv)
        # All that ops write to between two steps; the same rotations are read by every step.
        tables = {id(rows.memory) for block in self.model.blocks for rows in [block.attention.rope.cos_sin]}
        kept = buffers(tuple(instruction.keep for instruction in self.instructions))
        self.scratch = [memory for memory in kept if id(memory) not in tables]

    def outcome(
        self, rewrite: Rewrite, drawn: Callable[[int], np.ndarray] = np.arange
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Logits of every step, and the caches afterwards, as bytes; buffers hold NaN before each step. `drawn` says
        which of a step's tokens logits are wanted of."""
        backend = self.backend
        replay = Replay(backend._library, backend._team, rewrite(self.instructions, self.result.buffer), self.result)
        for layer in self.kv:
            layer.memory[:] = 0xFF
        logits = []
        for step, spans in enumerate(STEPS):
            for memory in self.scratch:
                memory.view(np.uint8)[...] = 0xFF
            tokens = sum(count for _, count in spans)
            token_T = np.random.default_rng(step).integers(0, self.model.vocab_size, tokens)
            batch = lay_out_batch(backend, spans, TABLES, BLOCK, token_T)
            batch.logit_S = backend.upload(drawn(tokens), "int32")
            logits.append(replay(batch).numpy().copy())
        return logits, [layer.memory.copy() for layer in self.kv]
