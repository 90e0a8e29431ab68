"""Backend: every array operation a model may use. Layers and models call these and do no arithmetic themselves.

The pure-numpy reference backend is the specification of each op; other backends override op by op and one
conformance suite compares them. Arrays are opaque to callers: only `.shape` may be read. Every op writes into
`out`, a buffer that the backend allocated, so a backend may record a step once and replay it.

Shapes: T tokens in the step, R rows, S sampled rows, D hidden, N query heads, K kv heads, H head dim,
F feed-forward, V vocabulary, W table width (blocks), B tokens per block, L layers, P rotary pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from octavo.quant.raw import RawWeight

Array = Any  # a backend's own array type; numpy.ndarray for the reference
Weight = Any  # a backend's packed weight
KVLayer = Any  # one layer's KV cache, in a backend's own layout


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What a step has at most: rows, tokens, tokens whose logits are wanted, and positions of a row."""

    rows: int
    tokens: int
    draws: int
    length: int


@dataclass(slots=True)
class Batch:
    """One step's rows, ragged and flattened; the only batch type. int32 arrays on the backend.

    Row r owns tokens query_start_R1[r] .. query_start_R1[r+1]-1, which sit at positions
    kv_len_R[r] - count .. kv_len_R[r]-1 of its sequence; kv_len counts the tokens in cache once this step's
    keys are stored. table_RW[r] lists its blocks; position p lives in slot table[p // B] * B + p % B.
    `logit_S` are the indices (into T) of the tokens whose logits are wanted.
    """

    tokens: int
    rows: int
    token_T: Array
    position_T: Array
    slot_T: Array
    query_start_R1: Array
    kv_len_R: Array
    table_RW: Array
    logit_S: Array
    attention: Any = None  # what Backend.plan_attention returned for this batch


@dataclass(slots=True)
class SampleBatch:
    """Sampling state of S draws, aligned with the logits. numpy arrays; a filter nobody uses is None.

    Greedy draws have temperature 0. Noise for draw s comes from (seed_S[s], choice_S[s], position_S[s]) only, where
    position is that of the token to be drawn. `history` gives, per draw that has penalties, (draw index,
    prompt token ids, output token ids). `logprobs_S` is -1 for draws that want none, else the number of top
    alternatives.
    """

    temperature_S: np.ndarray  # float32
    seed_S: np.ndarray  # int64
    choice_S: np.ndarray  # int64
    position_S: np.ndarray  # int64
    top_k_S: np.ndarray | None = None  # int64, 0 = off
    top_p_S: np.ndarray | None = None  # float32
    min_p_S: np.ndarray | None = None  # float32
    repetition_S: np.ndarray | None = None
    presence_S: np.ndarray | None = None
    frequency_S: np.ndarray | None = None
    history: list[tuple[int, np.ndarray, np.ndarray]] | None = None
    logprobs_S: np.ndarray | None = None


@dataclass(slots=True)
class Samples:
    """Drawn tokens [S] int64, and per draw (logprob of the token, top ids, top logprobs) where asked for."""

    token_S: np.ndarray
    logprobs: list[tuple[float, np.ndarray, np.ndarray] | None] | None = None


class Backend(Protocol):
    """See the module docstring. Which dtype activations have is the backend's own decision, made at construction."""

    name: str
    dtype: str  # the least precise one that numbers pass through on their way, e.g. "float32"

    threads: int  # that compute
    activation_bytes: int  # of one number in the buffers that `empty` gives

    # --- once, at load ---
    def refuse(self, formats: frozenset[str], head_dim: int, block_size: int) -> str | None:
        """Why this backend cannot serve such a model; None when it can."""

    def empty(self, shape: tuple[int, ...], dtype: str | None = None) -> Array:
        """An uninitialised buffer (`dtype` None: the activation dtype)."""

    def zeros(self, shape: tuple[int, ...], dtype: str | None = None) -> Array: ...

    def upload(self, values: np.ndarray, dtype: str | None = None) -> Array: ...

    def download(self, array: Array) -> np.ndarray: ...

    def pack(self, parts: list[RawWeight]) -> Weight:
        """One weight matrix from checkpoint parts stacked along output features (q|k|v, gate|up), or one vector."""

    def packed_bytes(self, format: str, shape: tuple[int, ...]) -> int:
        """Memory that a checkpoint tensor takes once packed."""

    # --- the KV cache ---
    def kv_block_bytes(self, block_size: int, kv_heads: int, head_dim: int) -> int:
        """Memory of one block of one layer."""

    def allocate_kv(self, blocks: int, block_size: int, kv_heads: int, head_dim: int) -> KVLayer:
        """A layer's cache that holds no NaN; the system hands out its pages when blocks are first used."""

    def read_kv(self, kv: KVLayer, slot_S: np.ndarray) -> np.ndarray:
        """Keys and values in the slots, [2, S, K, H]: for tests and diagnosis."""

    def copy_blocks(self, kv: list[KVLayer], copies: list[tuple[int, int]]) -> None:
        """Copy whole blocks (src, dst), in order, in every layer."""

    # --- once per step ---
    def plan_attention(self, batch: Batch) -> Any:
        """Per-step preparation shared by all layers (split counts, gather lists)."""

    # --- per layer ---
    def embed(self, weight: Weight, token_T: Array, out_TD: Array, scale: float = 1.0) -> None: ...

    def rms_norm(self, x_TD: Array, weight_D: Weight, eps: float, out_TD: Array) -> None:
        """Over the last axis; `x` may be [T, D] or [T, N, H] (per-head norm). `out` may alias `x`."""

    def linear(self, x_TI: Array, weight: Weight, out_TO: Array, bias_O: Weight | None = None) -> None: ...

    def add(self, x_TD: Array, y_TD: Array, out_TD: Array) -> None: ...

    def rows(self, x_TD: Array, count: int) -> Array:
        """The first `count` rows of a buffer, without a copy."""

    def split(self, x_TC: Array, widths: tuple[int, ...]) -> list[Array]:
        """Column views of a merged linear's output, in order, without a copy."""

    def heads(self, x_TC: Array, heads: int) -> Array:
        """[T, heads * H] seen as [T, heads, H], without a copy."""

    def rope(self, x_TNH: Array, cos_sin: Array, position_T: Array) -> None:
        """Rotate in place the first 2P of H dims, half-split layout. `cos_sin` is [positions, 2, P] float32."""

    def store_kv(self, key_TKH: Array, value_TKH: Array, kv: KVLayer, slot_T: Array) -> None: ...

    def attention(
        self, q_TNH: Array, kv: KVLayer, batch: Batch, scale: float, window: int | None, out_TNH: Array
    ) -> None:
        """Causal attention of each row's queries over its paged cache. `window` w: position p sees p-w+1 .. p."""

    def silu_mul(self, gate_up_T2F: Array, out_TF: Array) -> None:
        """silu(first half) * second half."""

    def gather(self, x_TD: Array, index_S: Array, out_SD: Array) -> None: ...

    # --- sampling ---
    def sample(self, logits_SV: Array, batch: SampleBatch) -> Samples: ...

    # --- capture ---
    def capture(
        self, forward: Callable[[Batch, list[KVLayer]], Array], kv: list[KVLayer], limits: StepLimits
    ) -> Callable[[Batch], Array]:
        """`forward` with its cache bound. A backend that records calls it once, with a batch that has counts and no
        arrays, and replays what it saw with the arrays of each step."""
