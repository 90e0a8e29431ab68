"""Linear and RMSNorm: a weight with the op that applies it.

Shapes: T tokens in the step, I input features, O output features (of all merged parts), D hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.ops.backend import Array, Backend, Weight


@dataclass(frozen=True, slots=True)
class Linear:
    """x W^T + b. Several checkpoint matrices merged along O are one Linear; `Backend.split` takes its output apart."""

    backend: Backend
    weight: Weight
    bias_O: Weight | None = None

    def __call__(self, x_TI: Array, out_TO: Array) -> None:
        self.backend.linear(x_TI, self.weight, out_TO, self.bias_O)


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """Root-mean-square norm over the last axis. `out` may be `x`."""

    backend: Backend
    weight_D: Weight
    eps: float

    def __call__(self, x_TD: Array, out_TD: Array) -> None:
        self.backend.rms_norm(x_TD, self.weight_D, self.eps, out_TD)
