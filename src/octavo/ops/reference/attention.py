"""Paged attention, the specification: causal softmax attention of each row's queries over keys and values that are
found through the row's block table and nowhere else. Owns the per-step plan and the tiling; not the cache itself.

Shapes: T tokens in the step, R rows, t queries of one tile, L keys that the tile sees, N query heads, K kv heads,
G = N / K query heads per kv head, H head dim, B tokens per block, W table width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octavo.ops.backend import Batch

QUERY_TILE = 64  # bounds the score matrix of a long prefill to N x 64 x L, and skips most keys of the future


@dataclass(frozen=True, slots=True)
class DenseKV:
    """One layer's cache: keys and values, each [blocks, B, K, H]."""

    keys: np.ndarray
    values: np.ndarray


@dataclass(frozen=True, slots=True)
class RowSpan:
    """Queries first_query .. end_query-1 of the step are positions first_position .. of the sequence in `row`."""

    row: int
    first_query: int
    end_query: int
    first_position: int


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """The spans of a batch as Python numbers, worked out once per step and read by every layer."""

    spans: list[RowSpan]

    @classmethod
    def of(cls, batch: Batch) -> AttentionPlan:
        starts: list[int] = batch.query_start_R1.tolist()
        lengths: list[int] = batch.kv_len_R.tolist()
        spans = []
        for row in range(batch.rows):
            first, end = starts[row], starts[row + 1]
            if end > first:
                spans.append(RowSpan(row, first, end, lengths[row] - (end - first)))
        return cls(spans)


def paged_attention(
    q_TNH: np.ndarray, kv: DenseKV, batch: Batch, scale: float, window: int | None, out_TNH: np.ndarray
) -> None:
    """For each query at position p of its sequence: softmax(q . k * scale) . v over the positions it sees.

    Those are 0 .. p, or p-window+1 .. p. Query head n reads kv head n // G (grouped queries, arXiv 2305.13245).
    Blocks wholly outside the window are never touched, nor are slots at or past the row's kv_len.
    """
    plan: AttentionPlan = batch.attention
    for span in plan.spans:
        for start in range(span.first_query, span.end_query, QUERY_TILE):
            end = min(start + QUERY_TILE, span.end_query)
            position = span.first_position + (start - span.first_query)
            lowest = 0 if window is None else max(0, position - window + 1)
            k_LKH, v_LKH = _gather_cache(kv, batch.table_RW[span.row], lowest, position + end - start)
            _attend(q_TNH[start:end], k_LKH, v_LKH, position - lowest, scale, window, out_TNH[start:end])


def _gather_cache(kv: DenseKV, table_W: np.ndarray, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values of positions begin .. end-1, each [L, K, H], through the block table."""
    _, block_size, kv_heads, head_dim = kv.keys.shape
    first_block, end_block = begin // block_size, -(-end // block_size)
    blocks = table_W[first_block:end_block]
    wanted = slice(begin - first_block * block_size, end - first_block * block_size)
    k_LKH = kv.keys[blocks].reshape(-1, kv_heads, head_dim)[wanted]
    v_LKH = kv.values[blocks].reshape(-1, kv_heads, head_dim)[wanted]
    return k_LKH, v_LKH


def _attend(
    q_tNH: np.ndarray,
    k_LKH: np.ndarray,
    v_LKH: np.ndarray,
    first_seen: int,
    scale: float,
    window: int | None,
    out_tNH: np.ndarray,
) -> None:
    """One tile. `first_seen` is the index into L of the first query's own key."""
    queries, heads, head_dim = q_tNH.shape
    length, kv_heads, _ = k_LKH.shape
    group = heads // kv_heads
    q_KMH = (q_tNH.reshape(queries, kv_heads, group, head_dim) * scale).transpose(1, 2, 0, 3)
    q_KMH = q_KMH.reshape(kv_heads, group * queries, head_dim)
    scores_KML = q_KMH @ k_LKH.transpose(1, 2, 0)
    if queries > 1:
        hidden_tL = _hidden(queries, length, first_seen, window)
        scores_KGtL = scores_KML.reshape(kv_heads, group, queries, length)
        np.copyto(scores_KGtL, -np.inf, where=hidden_tL)
    scores_KML -= scores_KML.max(axis=-1, keepdims=True)
    weight_KML = np.exp(scores_KML, out=scores_KML)
    mixed_KMH = weight_KML @ v_LKH.transpose(1, 0, 2)
    mixed_KMH /= weight_KML.sum(axis=-1, keepdims=True)
    mixed_tKGH = mixed_KMH.reshape(kv_heads, group, queries, head_dim).transpose(2, 0, 1, 3)
    out_tNH.reshape(queries, kv_heads, group, head_dim)[...] = mixed_tKGH


def _hidden(queries: int, length: int, first_seen: int, window: int | None) -> np.ndarray:
    """True [t, L] where a query must not look: its future, and what lies before its window."""
    own_t1 = np.arange(first_seen, first_seen + queries)[:, None]
    key_L = np.arange(length)
    hidden_tL = key_L > own_t1
    if window is not None:
        hidden_tL |= key_L <= own_t1 - window
    return hidden_tL
