"""The oracle of model tests, transformers in float32 with eager attention; and a paged run of ours to hold to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from octavo.checkpoint.open import open_checkpoint
from octavo.models.model import Model
from octavo.models.registry import model_class
from octavo.ops.conformance_cases import lay_out_batch
from octavo.ops.reference.attention import DenseKV
from octavo.ops.reference.backend import ReferenceBackend

BLOCK = 16


def transformers_logits(directory: Path, tokens: Sequence[int]) -> np.ndarray:
    """Logits [T, V] at every position, in one pass without a cache."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        return model(torch.tensor([list(tokens)])).logits[0].numpy()


def load_model(path: Path, dtype: str = "float32", max_tokens: int = 128) -> Model:
    source = open_checkpoint(path)
    try:
        return model_class(source.config).load(source.config, source, ReferenceBackend(dtype), max_tokens)
    finally:
        source.close()


class PagedRun:
    """A model with a cache of NaN, whose `rows` sequences own scattered blocks."""

    def __init__(self, model: Model, rows: int = 1, positions: int = 256, seed: int = 0) -> None:
        self.model = model
        self.backend = model.backend
        width = -(-positions // BLOCK)
        blocks = rows * width + 3
        shape = (blocks, BLOCK, model.kv_heads, model.head_dim)
        empty = np.full(shape, np.nan, self.backend.dtype)
        self.kv = [DenseKV(empty.copy(), empty.copy()) for _ in range(model.kv_layers)]
        self.tables = np.random.default_rng(seed).permutation(blocks)[: rows * width].reshape(rows, width)
        self.computed = [0] * rows

    def step(self, chunks: dict[int, Sequence[int]]) -> dict[int, np.ndarray]:
        """Compute the next tokens of some rows together; their logits [count, V] at every position."""
        rows = list(chunks)
        spans = [(self.computed[row], len(chunks[row])) for row in rows]
        token_T = np.concatenate([chunks[row] for row in rows])
        batch = lay_out_batch(self.backend, spans, self.tables[rows], BLOCK, token_T)
        logits_TV = self.backend.download(self.model.forward(batch, self.kv))
        for row in rows:
            self.computed[row] += len(chunks[row])
        ends = np.cumsum([count for _, count in spans])[:-1]
        return dict(zip(rows, np.split(logits_TV, ends), strict=True))


def relative_error(got: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference as a share of the largest logit; NaN counts as infinite."""
    error = float(np.abs(got - expected).max() / np.abs(expected).max())
    return error if np.isfinite(error) else float("inf")
