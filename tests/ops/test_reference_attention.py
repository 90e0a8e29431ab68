"""Paged attention of the reference against a loop over single queries on unpaged caches, in float64."""

import numpy as np
import pytest

from octavo.ops.conformance_cases import lay_out_batch
from octavo.ops.reference import attention
from octavo.ops.reference.attention import DenseKV
from octavo.ops.reference.backend import ReferenceBackend

BLOCK = 16


def one_query(q_NH: np.ndarray, k_LKH: np.ndarray, v_LKH: np.ndarray, scale: float) -> np.ndarray:
    """Attention of one token to all L keys, one head at a time."""
    group = q_NH.shape[0] // k_LKH.shape[1]
    out_NH = np.empty_like(q_NH)
    for n, q_H in enumerate(q_NH):
        score_L = np.array([float(np.dot(q_H, k_H)) * scale for k_H in k_LKH[:, n // group]])
        weight_L = np.exp(score_L - score_L.max())
        out_NH[n] = (weight_L[:, None] * v_LKH[:, n // group]).sum(axis=0) / weight_L.sum()
    return out_NH


class PagedCase:
    """Sequences with random keys and values, laid into scattered blocks of a cache that is NaN everywhere else."""

    def __init__(self, spans: list[tuple[int, int]], heads: int, kv_heads: int, head_dim: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.spans, self.heads, self.scale = spans, heads, 0.3
        self.backend = ReferenceBackend("float64")
        width = max(-(-(start + count) // BLOCK) for start, count in spans)
        blocks = len(spans) * width + 2
        self.tables = rng.permutation(blocks)[: len(spans) * width].reshape(len(spans), width)
        shape = (blocks, BLOCK, kv_heads, head_dim)
        self.kv = DenseKV(np.full(shape, np.nan), np.full(shape, np.nan))
        self.rows = []
        for (start, count), table in zip(spans, self.tables, strict=True):
            k_LKH, v_LKH = rng.standard_normal((2, start + count, kv_heads, head_dim))
            for position in range(start + count):
                self.kv.keys[table[position // BLOCK], position % BLOCK] = k_LKH[position]
                self.kv.values[table[position // BLOCK], position % BLOCK] = v_LKH[position]
            self.rows.append((rng.standard_normal((count, heads, head_dim)), k_LKH, v_LKH))

    def expected(self, window: int | None) -> np.ndarray:
        out = []
        for (start, count), (q_CNH, k_LKH, v_LKH) in zip(self.spans, self.rows, strict=True):
            for i in range(count):
                seen = slice(max(0, start + i - window + 1) if window else 0, start + i + 1)
                out.append(one_query(q_CNH[i], k_LKH[seen], v_LKH[seen], self.scale))
        return np.stack(out)

    def computed(self, window: int | None) -> np.ndarray:
        q_TNH = np.concatenate([q_CNH for q_CNH, _, _ in self.rows])
        batch = lay_out_batch(self.backend, self.spans, self.tables, BLOCK, np.zeros(len(q_TNH)))
        out_TNH = np.full(q_TNH.shape, np.nan)
        self.backend.attention(q_TNH, self.kv, batch, self.scale, window, out_TNH)
        return out_TNH


SPANS = {
    "decode": [(0, 1), (15, 1), (16, 1), (100, 1)],
    "prefill over tiles": [(0, 150)],
    "mixed": [(31, 1), (7, 70), (0, 16), (64, 3)],
}


@pytest.mark.parametrize("window", [None, 1, 5, 16, 40])
@pytest.mark.parametrize("heads", [(1, 1), (6, 2), (5, 1)])
@pytest.mark.parametrize("spans", SPANS.values(), ids=SPANS)
def test_equals_single_queries(spans: list[tuple[int, int]], heads: tuple[int, int], window: int | None) -> None:
    case = PagedCase(spans, *heads, head_dim=10, seed=3)
    np.testing.assert_allclose(case.computed(window), case.expected(window), rtol=1e-10, atol=1e-12)


def test_blocks_before_the_window_are_not_read() -> None:
    case = PagedCase([(90, 1), (60, 20)], 2, 1, 8, seed=5)
    case.tables[:, 0] = -(10**6)  # as if released: any read through it would raise
    np.testing.assert_allclose(case.computed(20), case.expected(20), rtol=1e-10)


def test_scores_in_the_thousands_neither_overflow_nor_warn(recwarn: pytest.WarningsRecorder) -> None:
    case = PagedCase([(20, 3)], 2, 1, 8, seed=6)
    case.scale = 1e4
    np.testing.assert_allclose(case.computed(None), case.expected(None), rtol=1e-9)
    assert not recwarn.list


def test_rows_without_tokens_take_no_part() -> None:
    case = PagedCase([(3, 2), (8, 0), (5, 1)], 2, 1, 8, seed=7)
    np.testing.assert_allclose(case.computed(None), case.expected(None), rtol=1e-10)


def test_tiling_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    case = PagedCase([(3, 50), (0, 9)], 4, 2, 8, seed=8)
    whole = case.computed(12)
    monkeypatch.setattr(attention, "QUERY_TILE", 7)
    np.testing.assert_allclose(case.computed(12), whole, rtol=1e-12)
