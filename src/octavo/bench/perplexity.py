"""Perplexity of a model on a text: how well it foresees each token. Runs the model's recorded step in this process with
logits of every position, through the paged cache, so that it judges weights, kernels and the cache's format together.

Shapes: T tokens in the step, V vocabulary.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from octavo.checkpoint.open import open_checkpoint
from octavo.config import EngineConfig, check_threads
from octavo.errors import BenchError
from octavo.models.registry import model_class, model_facts
from octavo.ops.backend import Array, Backend, Batch, StepLimits
from octavo.ops.choose import Wish, choose_backend
from octavo.ops.conformance_cases import lay_out_batch
from octavo.runner.cores import usable_cores
from octavo.runner.kv_cache import allocate_kv, kv_spec

MIN_WINDOW = 2  # the first token of a window is given, so a shorter one has nothing to foresee


class PerplexityFigures(msgspec.Struct, frozen=True, kw_only=True):
    """exp of the mean negative log likelihood over `scored` tokens. `fingerprint` names the token ids: two figures
    belong side by side only when theirs are equal."""

    perplexity: float
    nats_per_token: float
    scored: int
    tokens: int
    window: int
    fingerprint: str
    backend: str
    dtype: str


def python_text() -> str:
    """English prose that ships with every Python: the language reference, as `help()` shows it, of 465,000 characters.

    Its words change between Python versions, hence `PerplexityFigures.fingerprint`.
    """
    from pydoc_data.topics import topics

    return "\n\n".join(topics.values())


def text_tokens(encode: Callable[[str], list[int]], text: str, count: int) -> list[int]:
    """The first `count` token ids of `text`. BenchError when it has fewer."""
    tokens = encode(text)
    if len(tokens) < count:
        raise BenchError(f"the text has {len(tokens)} tokens, not {count}: lower --tokens or choose a longer text")
    return tokens[:count]


class Scorer:
    """A loaded model with a cache for one window, which it reads in steps of at most `config.chunk` tokens.

    CheckpointError, UnsupportedModel and ConfigError as `build_engine` has them; BenchError for a window that the
    model was not made for.
    """

    def __init__(
        self, config: EngineConfig, path: Path, window: int, progress: Callable[[int, int], None] | None = None
    ) -> None:
        source = open_checkpoint(path)
        try:
            facts = model_facts(source.config)
            if not MIN_WINDOW <= window <= facts.context_length:
                raise BenchError(
                    f"--window must lie between {MIN_WINDOW} and the model's {facts.context_length}, got {window}"
                )
            check_threads(config, usable_cores())
            wish = Wish(config.dtype, config.threads, usable_cores(), config.kv_dtype, config.quantize)
            formats = frozenset(format for format, _ in source.stored)
            backend, _ = choose_backend(config.backend, wish, formats, facts.head_dim, config.block_size)
            chunk = min(config.chunk, window)
            model = model_class(source.config).load(
                source.config, source, backend, chunk, context_length=window, progress=progress
            )
        finally:
            source.close()
        spec = kv_spec(facts, config.block_size, backend)
        blocks = spec.blocks_for(window)
        self.backend: Backend = backend
        self._chunk = chunk
        self._block = config.block_size
        self._table = np.arange(blocks)[np.newaxis]
        limits = StepLimits(rows=1, tokens=chunk, draws=chunk, length=window)
        self._forward: Callable[[Batch], Array] = backend.capture(
            model.forward, allocate_kv(backend, spec, blocks), limits
        )

    def log_likelihoods(self, tokens: Sequence[int]) -> list[float]:
        """ln p(token | those before it) in nats, for each of `tokens` (one window) but the first."""
        scores: list[float] = []
        for start in range(0, len(tokens) - 1, self._chunk):
            # The last token of the window has nothing to foresee and need not be computed.
            given = tokens[start : min(start + self._chunk, len(tokens) - 1)]
            batch = lay_out_batch(self.backend, [(start, len(given))], self._table, self._block, np.array(given))
            logits_TV = self.backend.download(self._forward(batch))
            scores += _scores(logits_TV, np.array(tokens[start + 1 : start + 1 + len(given)]))
        return scores


def measure_perplexity(
    scorer: Scorer, tokens: Sequence[int], window: int, track: Callable[[list[int]], Iterator[int]] = iter
) -> PerplexityFigures:
    """Cut `tokens` into windows that know nothing of each other and score each. `track` shows progress over them."""
    scores: list[float] = []
    # A last token that would be alone in its window is left out.
    for start in track(list(range(0, len(tokens) - 1, window))):
        scores += scorer.log_likelihoods(tokens[start : start + window])
    nats = -math.fsum(scores) / len(scores)
    return PerplexityFigures(
        perplexity=math.exp(nats),
        nats_per_token=nats,
        scored=len(scores),
        tokens=len(tokens),
        window=window,
        fingerprint=hashlib.sha256(np.array(tokens, "<i4").tobytes()).hexdigest()[:12],
        backend=scorer.backend.name,
        dtype=scorer.backend.dtype,
    )


def _scores(logits_TV: np.ndarray, target_T: np.ndarray) -> list[float]:
    """The target's logit less log-sum-exp of its row. The sum is float64: 50,000 terms cost float32 three digits."""
    top_T = logits_TV.max(axis=1)
    chosen_T = logits_TV[np.arange(len(target_T)), target_T] - top_T
    np.subtract(logits_TV, top_T[:, np.newaxis], out=logits_TV)
    np.exp(logits_TV, out=logits_TV)
    scores: list[float] = (chosen_T - np.log(logits_TV.sum(axis=1, dtype=np.float64))).tolist()
    return scores
