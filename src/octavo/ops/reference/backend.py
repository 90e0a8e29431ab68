"""ReferenceBackend: the ops that are a few lines of numpy each, arrays and packing. This file is the specification
of those ops; paged attention is specified in `attention.py` and sampling in `sample.py`.

Shapes: T tokens in the step, S gathered rows, D hidden, N query heads, K kv heads, H head dim, F feed-forward,
I and O input and output features of a linear, C columns of a merged output, P rotary pairs, B tokens per block.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from octavo.errors import ConfigError
from octavo.ops.backend import Array, Batch, SampleBatch, Samples, StepLimits
from octavo.ops.reference.attention import AttentionPlan, DenseKV, paged_attention
from octavo.ops.reference.sample import draw_samples
from octavo.quant.dequantize import dequantize
from octavo.quant.formats import FORMATS
from octavo.quant.raw import RawWeight

DTYPES = ("float32", "float64")


class ReferenceBackend:
    """Implements `ops.backend.Backend` with numpy arrays. `dtype` is that of weights, activations and KV cache.

    Weights are dense, row-major [O, I]. ConfigError for a dtype that numpy cannot compute in.

    `threads` limits numpy's BLAS, for the whole process. Its threads spin while they wait for each other, so a step
    takes many times as long when there are more of them than cores that nobody else uses.
    """

    name = "reference"

    def __init__(self, dtype: str = "float32", threads: int | None = None) -> None:
        if dtype not in DTYPES:
            raise ConfigError(f"the reference backend computes in {' or '.join(DTYPES)}, not {dtype}")
        self.dtype = dtype
        self.threads = threads or 1
        self.activation_bytes = np.dtype(dtype).itemsize
        if threads is not None:
            threadpool_limits(threads, user_api="blas")

    # --- once, at load ---

    def refuse(self, formats: frozenset[str], head_dim: int, block_size: int) -> str | None:  # noqa: ARG002 (any will do)
        unknown = sorted(formats - FORMATS.keys())
        return f"no dequantization for the tensor types {', '.join(unknown)}" if unknown else None

    def empty(self, shape: tuple[int, ...], dtype: str | None = None) -> np.ndarray:
        return np.empty(shape, dtype or self.dtype)

    def zeros(self, shape: tuple[int, ...], dtype: str | None = None) -> np.ndarray:
        return np.zeros(shape, dtype or self.dtype)

    def upload(self, values: np.ndarray, dtype: str | None = None) -> np.ndarray:
        """A copy that the caller's later writes do not reach."""
        return np.array(values, dtype or self.dtype, order="C")

    def download(self, array: np.ndarray) -> np.ndarray:
        return array.copy()

    def pack(self, parts: list[RawWeight]) -> np.ndarray:
        """Dequantize each part straight into its rows of the result: [sum of rows, I], or one vector."""
        width = parts[0].shape[1:]
        packed = np.empty((sum(part.shape[0] for part in parts), *width), self.dtype)
        row = 0
        for part in parts:
            assert part.shape[1:] == width, "the loader checks shapes"
            dequantize(part, out=packed[row : row + part.shape[0]])
            row += part.shape[0]
        return packed

    def packed_bytes(self, format: str, shape: tuple[int, ...]) -> int:  # noqa: ARG002 (all become dense)
        return math.prod(shape) * np.dtype(self.dtype).itemsize

    # --- the KV cache ---

    def kv_block_bytes(self, block_size: int, kv_heads: int, head_dim: int) -> int:
        return 2 * block_size * kv_heads * head_dim * np.dtype(self.dtype).itemsize

    def allocate_kv(self, blocks: int, block_size: int, kv_heads: int, head_dim: int) -> DenseKV:
        shape = blocks, block_size, kv_heads, head_dim
        return DenseKV(self.zeros(shape), self.zeros(shape))

    def read_kv(self, kv: DenseKV, slot_S: np.ndarray) -> np.ndarray:
        block_S, offset_S = np.divmod(slot_S, kv.keys.shape[1])
        return np.stack([kv.keys[block_S, offset_S], kv.values[block_S, offset_S]])

    def copy_blocks(self, kv: list[DenseKV], copies: list[tuple[int, int]]) -> None:
        for layer in kv:
            for source, destination in copies:
                layer.keys[destination] = layer.keys[source]
                layer.values[destination] = layer.values[source]

    # --- once per step ---

    def plan_attention(self, batch: Batch) -> AttentionPlan:
        return AttentionPlan.of(batch)

    # --- per layer ---

    def rows(self, x_TD: np.ndarray, count: int) -> np.ndarray:
        return x_TD[:count]

    def split(self, x_TC: np.ndarray, widths: tuple[int, ...]) -> list[np.ndarray]:
        return np.split(x_TC, np.cumsum(widths)[:-1], axis=1)

    def heads(self, x_TC: np.ndarray, heads: int) -> np.ndarray:
        return x_TC.reshape(x_TC.shape[0], heads, -1)

    def embed(self, weight: np.ndarray, token_T: np.ndarray, out_TD: np.ndarray, scale: float = 1.0) -> None:
        np.take(weight, token_T, axis=0, out=out_TD)
        if scale != 1.0:
            out_TD *= scale

    def rms_norm(self, x_TD: np.ndarray, weight_D: np.ndarray, eps: float, out_TD: np.ndarray) -> None:
        """x / sqrt(mean(x^2) + eps) * weight (arXiv 1910.07467)."""
        mean_square = np.mean(np.square(x_TD), axis=-1, keepdims=True)
        np.multiply(x_TD, 1.0 / np.sqrt(mean_square + eps), out=out_TD)
        out_TD *= weight_D

    def linear(
        self, x_TI: np.ndarray, weight: np.ndarray, out_TO: np.ndarray, bias_O: np.ndarray | None = None
    ) -> None:
        np.matmul(x_TI, weight.T, out=out_TO)
        if bias_O is not None:
            out_TO += bias_O

    def add(self, x_TD: np.ndarray, y_TD: np.ndarray, out_TD: np.ndarray) -> None:
        np.add(x_TD, y_TD, out=out_TD)

    def rope(self, x_TNH: np.ndarray, cos_sin: np.ndarray, position_T: np.ndarray) -> None:
        """Dimension p and p + P form a pair, turned by the angle of its position (arXiv 2104.09864)."""
        cos_TP, sin_TP = cos_sin[position_T, 0], cos_sin[position_T, 1]
        cos_T1P, sin_T1P = cos_TP[:, None, :], sin_TP[:, None, :]
        pairs = cos_TP.shape[1]
        first, second = x_TNH[..., :pairs], x_TNH[..., pairs : 2 * pairs]
        turned = first * cos_T1P - second * sin_T1P
        second[...] = second * cos_T1P + first * sin_T1P
        first[...] = turned

    def store_kv(self, key_TKH: np.ndarray, value_TKH: np.ndarray, kv: DenseKV, slot_T: np.ndarray) -> None:
        block_T, offset_T = np.divmod(slot_T, kv.keys.shape[1])
        kv.keys[block_T, offset_T] = key_TKH
        kv.values[block_T, offset_T] = value_TKH

    def attention(
        self,
        q_TNH: np.ndarray,
        kv: DenseKV,
        batch: Batch,
        scale: float,
        window: int | None,
        out_TNH: np.ndarray,
    ) -> None:
        paged_attention(q_TNH, kv, batch, scale, window, out_TNH)

    def silu_mul(self, gate_up_T2F: np.ndarray, out_TF: np.ndarray) -> None:
        """gate * sigmoid(gate) * up."""
        gate_TF, up_TF = np.split(gate_up_T2F, 2, axis=1)
        with np.errstate(over="ignore"):  # exp overflows to inf for very negative gates: the quotient is then 0
            np.exp(-gate_TF, out=out_TF)
        out_TF += 1.0
        np.divide(gate_TF, out_TF, out=out_TF)
        out_TF *= up_TF

    def gather(self, x_TD: np.ndarray, index_S: np.ndarray, out_SD: np.ndarray) -> None:
        np.take(x_TD, index_S, axis=0, out=out_SD)

    # --- sampling ---

    def sample(self, logits_SV: np.ndarray, batch: SampleBatch) -> Samples:
        return draw_samples(logits_SV, batch)

    # --- capture ---

    def capture(
        self,
        forward: Callable[[Batch, list[DenseKV]], Array],
        kv: list[DenseKV],
        limits: StepLimits,  # noqa: ARG002 (nothing is recorded)
    ) -> Callable[[Batch], Array]:
        return lambda batch: forward(batch, kv)
