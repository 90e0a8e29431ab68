"""GatedMLP: the SwiGLU feed-forward block (arXiv 2002.05202), gate and up as one merged matrix.

Shapes: T tokens in the step, D hidden, F feed-forward.
"""

from __future__ import annotations

from octavo.layers.loader import Loader
from octavo.layers.scratch import Scratch
from octavo.ops.backend import Array


class GatedMLP:
    """`load` is scoped to the layer's mlp: gate_proj, up_proj, down_proj."""

    def __init__(
        self, hidden: int, feed_forward: int, load: Loader, scratch: Scratch, max_tokens: int, *, bias: bool
    ) -> None:
        self.backend = load.backend
        self.scratch = scratch
        self.gate_up = load.linear(["gate_proj", "up_proj"], [feed_forward] * 2, hidden, bias=bias)
        self.down = load.linear(["down_proj"], [hidden], feed_forward, bias=bias)
        scratch.reserve("gate_up", max_tokens, 2 * feed_forward)
        scratch.reserve("activated", max_tokens, feed_forward)

    def __call__(self, x_TD: Array, out_TD: Array) -> None:
        tokens = x_TD.shape[0]
        gate_up_T2F = self.scratch.rows("gate_up", tokens)
        self.gate_up(x_TD, gate_up_T2F)
        activated_TF = self.scratch.rows("activated", tokens)
        self.backend.silu_mul(gate_up_T2F, activated_TF)
        self.down(activated_TF, out_TD)
