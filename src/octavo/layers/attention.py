"""Attention: queries, keys and values of the step from one merged matrix, rotary positions, the paged cache, and the
output projection. Everything that differs between families is a value in AttentionShape.

Shapes: T tokens in the step, D hidden, N query heads, K kv heads, H head dim, C merged columns (N + 2K) x H.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.layers.loader import Loader
from octavo.layers.rope import Rope
from octavo.layers.scratch import Scratch
from octavo.ops.backend import Array, Batch, KVLayer


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Sizes and options. `window` is how many positions a query sees, its own included; None for all."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool
    out_bias: bool
    qk_norm_eps: float | None
    window: int | None

    @property
    def widths(self) -> tuple[int, int, int]:
        """Columns of queries, keys and values in the merged output."""
        kv_width = self.kv_heads * self.head_dim
        return self.heads * self.head_dim, kv_width, kv_width


class Attention:
    """`load` is scoped to the layer's attention: q_proj, k_proj, v_proj, o_proj, and q_norm, k_norm if it has them."""

    def __init__(self, shape: AttentionShape, load: Loader, rope: Rope, scratch: Scratch, max_tokens: int) -> None:
        self.backend = load.backend
        self.shape = shape
        self.rope = rope
        self.scratch = scratch
        self.scale = shape.head_dim**-0.5
        q_width, kv_width, _ = shape.widths
        self.qkv = load.linear(["q_proj", "k_proj", "v_proj"], shape.widths, shape.hidden, bias=shape.qkv_bias)
        self.out = load.linear(["o_proj"], [shape.hidden], q_width, bias=shape.out_bias)
        eps = shape.qk_norm_eps
        self.q_norm = None if eps is None else load.norm("q_norm", shape.head_dim, eps)
        self.k_norm = None if eps is None else load.norm("k_norm", shape.head_dim, eps)
        scratch.reserve("qkv", max_tokens, q_width + 2 * kv_width)
        scratch.reserve("attended", max_tokens, q_width)

    def __call__(self, x_TD: Array, kv: KVLayer, batch: Batch, out_TD: Array) -> None:
        backend, shape = self.backend, self.shape
        qkv_TC = self.scratch.rows("qkv", batch.tokens)
        self.qkv(x_TD, qkv_TC)
        q, k, v = backend.split(qkv_TC, shape.widths)
        q_TNH, k_TKH, v_TKH = (
            backend.heads(q, shape.heads),
            backend.heads(k, shape.kv_heads),
            backend.heads(v, shape.kv_heads),
        )
        if self.q_norm is not None and self.k_norm is not None:
            self.q_norm(q_TNH, q_TNH)
            self.k_norm(k_TKH, k_TKH)
        self.rope(q_TNH, batch.position_T)
        self.rope(k_TKH, batch.position_T)
        backend.store_kv(k_TKH, v_TKH, kv, batch.slot_T)
        attended = self.scratch.rows("attended", batch.tokens)
        backend.attention(q_TNH, kv, batch, self.scale, shape.window, backend.heads(attended, shape.heads))
        self.out(attended, out_TD)
