"""ATTENTION against float64 softmax attention over what the cache holds, within a bound that its roundings give; and
equal bits in every company: alone, batched, chunked, on any number of threads.

Shapes: T tokens, R rows, N query heads, K kv heads, G = N / K, H head dim, L positions of a row, t queries of a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from paged_rows import Batch, Cache, Row, Team, attend, isa_levels, store_op, to_bf16

from octavo.ops.native import abi

DTYPES = {"bf16": abi.KV_BF16, "int8": abi.KV_INT8}
TILE = 128  # of the kernel: int8 weights are rounded in units of the largest of a tile


@dataclass
class Scene:
    """Rows of a cache with all their tokens stored, and a query for every position of every row."""

    cache: Cache
    rows: list[Row]
    queries: list[np.ndarray]  # per row [L, N, H]

    def batch(self, counts: list[int], hidden: list[int] | None = None) -> Batch:
        return Batch(self.rows, counts, self.cache.block_size, hidden)

    def q(self, counts: list[int]) -> np.ndarray:
        return np.concatenate([q[len(q) - count :] for q, count in zip(self.queries, counts, strict=True)])


def make_scene(
    dtype: str, lengths: list[int], heads: tuple[int, int, int], block_size: int = 16, isa: str | None = None
) -> Scene:
    """Rows on shuffled blocks; spread scores, so that some weights are large and most are small. heads: N, K, H."""
    query_heads, kv_heads, head_dim = heads
    rng = np.random.default_rng(sum(lengths) + head_dim)
    needs = [-(-length // block_size) for length in lengths]
    blocks = rng.permutation(sum(needs) + 1).astype(np.int32)
    tables = np.split(blocks[: sum(needs)], np.cumsum(needs)[:-1])
    cache = Cache(DTYPES[dtype], block_size, kv_heads, head_dim, len(blocks))
    rows = [Row(table, length) for table, length in zip(tables, lengths, strict=True)]
    key, value = rng.standard_normal((2, sum(lengths), kv_heads * head_dim), np.float32)
    value *= 3
    with Team(2, isa) as team:
        team.run([store_op(key, value, cache)], Batch(rows, lengths, block_size))
    queries = [rng.standard_normal((length, query_heads, head_dim), np.float32) * 2 for length in lengths]
    return Scene(cache, rows, queries)


def rounded_queries(q_TNH: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bf16":
        return to_bf16(q_TNH)
    unit = np.abs(q_TNH).max(-1, keepdims=True) / np.float32(127)
    return np.rint(q_TNH * (np.float32(1) / unit)) * unit


def oracle(scene: Scene, dtype: str, r: int, count: int, scale: float, window: int) -> tuple[np.ndarray, np.ndarray]:
    """The last `count` queries of row r in float64, [t, N, H], and how far roundings may take the kernel from it."""
    row, cache = scene.rows[r], scene.cache
    positions = np.arange(row.length)
    k_LKH, v_LKH = (x.astype(np.float64) for x in cache.read(row.slots(positions, cache.block_size)))
    q_tNH = rounded_queries(scene.queries[r][row.length - count :], dtype).astype(np.float64)
    group = q_tNH.shape[1] // cache.kv_heads
    own_t1 = np.arange(row.length - count, row.length)[:, None]
    hidden_tL = (positions > own_t1) | ((positions <= own_t1 - window) if window else False)
    out_tNH, bound_tNH = np.empty_like(q_tNH), np.empty_like(q_tNH)
    for head in range(q_tNH.shape[1]):
        k_LH, v_LH = k_LKH[:, head // group], v_LKH[:, head // group]
        score_tL = np.where(hidden_tL, -np.inf, q_tNH[:, head] @ k_LH.T * scale)
        weight_tL = np.exp(score_tL - score_tL.max(1, keepdims=True))
        weight_tL /= weight_tL.sum(1, keepdims=True)
        out_tNH[:, head] = weight_tL @ v_LH
        bound_tNH[:, head] = _bound(dtype, weight_tL, v_LH, out_tNH[:, head])
    return out_tNH, bound_tNH


def _bound(dtype: str, weight_tL: np.ndarray, v_LH: np.ndarray, out_tH: np.ndarray) -> np.ndarray:
    """bf16, 8 bits: each weight is off by 2^-8 of itself. int8: by half of 1/32767 of its tile's largest.

    Float32 sums come on top.
    """
    float32_tH = 2e-5 * (weight_tL @ np.abs(v_LH)) + 1e-6
    if dtype == "bf16":
        spread_tH = np.stack([w_L @ np.abs(v_LH - o_H) for w_L, o_H in zip(weight_tL, out_tH, strict=True)])
        return 2**-8 * 1.01 * spread_tH + float32_tH
    largest_tL = weight_tL * np.abs(v_LH).max(1)
    tiles_tX = np.maximum.reduceat(largest_tL, np.arange(0, len(v_LH), TILE), axis=1)
    return TILE * 0.5 / 32767 * tiles_tX.sum(1, keepdims=True) + float32_tH


def check(scene: Scene, dtype: str, counts: list[int], team: Team, window: int = 0) -> np.ndarray:
    """Runs one step and compares every row; blocks before all windows are not in the table."""
    hidden = None
    if window:
        first = [max(0, row.length - count - window + 1) for row, count in zip(scene.rows, counts, strict=True)]
        hidden = [position // scene.cache.block_size for position in first]
    scale = scene.cache.head_dim**-0.5
    out_TNH = attend(team, scene.cache, scene.batch(counts, hidden), scene.q(counts), scale, window)
    ends = np.cumsum(counts)
    for r, (count, end) in enumerate(zip(counts, ends, strict=True)):
        expected_tNH, bound_tNH = oracle(scene, dtype, r, count, scale, window)
        excess = np.abs(out_TNH[end - count : end] - expected_tNH) / bound_tNH
        assert excess.max() <= 1, f"row {r} of length {scene.rows[r].length}: {excess.max():.2f} times the bound"
    return out_TNH


EDGES = [1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 129, 511, 512, 513, 1025, 2000]


@pytest.mark.parametrize("isa", isa_levels())
@pytest.mark.parametrize("dtype", DTYPES)
def test_decode_at_every_edge(dtype: str, isa: str) -> None:
    """One query per row, contexts at the edges of blocks, tiles and splits."""
    scene = make_scene(dtype, EDGES, (6, 2, 64), isa=isa)
    with Team(2, isa) as team:
        check(scene, dtype, [1] * len(EDGES), team)


@pytest.mark.parametrize("isa", isa_levels())
@pytest.mark.parametrize("head_dim", [16, 20, 32, 64, 80, 96, 128, 256])
@pytest.mark.parametrize("dtype", DTYPES)
def test_head_dims(dtype: str, head_dim: int, isa: str) -> None:
    """Prefill and decode in one step, blocks of 32."""
    scene = make_scene(dtype, [70, 1, 150, 33], (4, 2, head_dim), block_size=32, isa=isa)
    with Team(1, isa) as team:
        check(scene, dtype, [70, 1, 1, 5], team)


@pytest.mark.parametrize("isa", isa_levels())
@pytest.mark.parametrize("group", [1, 2, 3, 4, 7, 8, 50])
@pytest.mark.parametrize("dtype", DTYPES)
def test_groups(dtype: str, group: int, isa: str) -> None:
    """Query heads per kv head, more than a tile of readers holds among them."""
    scene = make_scene(dtype, [90, 40, 17], (group, 1, 32), isa=isa)
    with Team(2, isa) as team:
        check(scene, dtype, [37, 1, 17], team)


@pytest.mark.parametrize("window", [1, 7, 16, 100, 600])
@pytest.mark.parametrize("dtype", DTYPES)
def test_windows(dtype: str, window: int) -> None:
    """Blocks before the windows are not in the table: reading one would end in a wild address."""
    scene = make_scene(dtype, [40, 700, 1300, 90], (3, 1, 32))
    with Team(2) as team:
        check(scene, dtype, [40, 1, 150, 3], team, window)


@pytest.mark.parametrize("isa", isa_levels())
@pytest.mark.parametrize("window", [0, 300])
@pytest.mark.parametrize("dtype", DTYPES)
def test_same_bits_in_every_company(dtype: str, window: int, isa: str) -> None:
    """All queries of three rows at once, then each row in chunks, then single queries alone, on 1 to 4 threads."""
    lengths = [1100, 37, 530]
    scene = make_scene(dtype, lengths, (6, 2, 32), isa=isa)
    with Team(2, isa) as team:
        together = np.split(check(scene, dtype, lengths, team, window), np.cumsum(lengths)[:-1])
    for r, (row, whole_LNH) in enumerate(zip(scene.rows, together, strict=True)):
        for threads, count, end in _chunks(row.length):
            alone = Scene(scene.cache, [Row(row.table, end)], [scene.queries[r][:end]])
            with Team(threads, isa) as team:
                part = attend(team, scene.cache, alone.batch([count]), alone.q([count]), 32**-0.5, window)
            np.testing.assert_array_equal(part.view(np.int32), whole_LNH[end - count : end].view(np.int32))


def _chunks(length: int) -> list[tuple[int, int, int]]:
    """(threads, queries, end position): decodes at edges and at the end, and uneven chunks."""
    ends = [end for end in (1, 16, 17, 64, 65, 300, 512, 513, 1025) if end <= length]
    decodes = [(1 + i % 4, 1, end) for i, end in enumerate([*ends, length])]
    return [*decodes, (3, min(100, length), length), (4, min(13, length), length), (2, length, length)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_spread_splits_equal_one_task(dtype: str) -> None:
    """One long row on many threads has its splits spread over tasks and joined; on one thread it has not."""
    scene = make_scene(dtype, [3000], (3, 1, 64))
    outs = []
    for threads in (1, 2, 4):
        with Team(threads) as team:
            outs.append(check(scene, dtype, [3], team))
    np.testing.assert_array_equal(outs[0], outs[1])
    np.testing.assert_array_equal(outs[0], outs[2])


def test_a_nan_query_stays_its_own() -> None:
    """NaN in one row's query gives NaN there, and changes no other row."""
    scene = make_scene("bf16", [50, 50], (2, 1, 32))
    with Team(1) as team:
        clean = attend(team, scene.cache, scene.batch([1, 1]), scene.q([1, 1]), 0.2)
        q_TNH = scene.q([1, 1])
        q_TNH[0, 0, 3] = np.nan
        spoilt = attend(team, scene.cache, scene.batch([1, 1]), q_TNH, 0.2)
    assert np.isnan(spoilt[0, 0]).all()
    np.testing.assert_array_equal(spoilt[1], clean[1])
    np.testing.assert_array_equal(spoilt[0, 1], clean[0, 1])
