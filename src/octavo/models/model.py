"""What a model tells before it is loaded (ModelFacts) and does once it is (Model). Imports no numpy: the front end
prints the memory plan from facts alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from octavo.checkpoint.source import WeightSource
    from octavo.ops.backend import Array, Backend, Batch, KVLayer


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Numbers of a model that follow from its config.

    `layers` is how many layers keep a KV cache, each with `kv_heads` x `head_dim` keys and as many values per
    token; `windows` gives per layer how many positions it sees, None for all. `parameters` counts a tied matrix
    once. A step needs `scratch_per_token` activation elements per token and `vocab_size` per sampled row.
    """

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    windows: tuple[int | None, ...]
    context_length: int
    vocab_size: int
    parameters: int
    scratch_per_token: int


class Model(Protocol):
    """A loaded model. Its buffers, logits included, live as long as it does and are overwritten by each forward."""

    kv_layers: int
    kv_heads: int
    head_dim: int
    context_length: int
    vocab_size: int

    @classmethod
    def load(
        cls,
        config: dict[str, Any],
        source: WeightSource,
        backend: Backend,
        max_tokens: int,
        *,
        max_logits: int | None = None,
        context_length: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Self:
        """Read all weights from `source`, which may be closed afterwards.

        `max_tokens` bounds a step's tokens and `max_logits` (None: `max_tokens`) the logits asked of it;
        `context_length` limits positions below the config's own. `progress` gets (bytes done, bytes in all).
        CheckpointError when config and tensors do not fit each other, UnsupportedModel for what we do not serve.
        """

    def forward(self, batch: Batch, kv: list[KVLayer]) -> Array:
        """Store the step's keys and values in `kv` (one per layer) and return logits [S, V] of `batch.logit_S`.

        `batch.attention` must hold the backend's plan of this batch. The result is a view of the model's buffer.
        """
