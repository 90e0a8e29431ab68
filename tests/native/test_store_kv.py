"""STORE_KV and ROPE_STORE: what is read back from a block is what was stored, rounded to bf16 or to int8 and a scale,
and nothing else changes; the fused op is bit for bit the ops that it replaces.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from paged_rows import Batch, Cache, Row, Team, isa_levels, store_op, to_bf16, view

from octavo.ops.native import abi
from octavo.ops.native.library import load_library

SHAPES = [(16, 1, 16), (32, 3, 64), (16, 2, 20), (48, 2, 80), (32, 1, 256), (16, 3, 34)]


def int8_rounded(x_LKH: np.ndarray) -> np.ndarray:
    """Codes -127..127 times a float16 scale per token and head: an independent account of what is stored."""
    scale = (np.abs(x_LKH).max(-1, keepdims=True) / np.float32(127)).astype(np.float16).astype(np.float32)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    return np.clip(np.rint(x_LKH * inverse), -127, 127) * scale


def stored(
    dtype: int, block_size: int, isa: str, x: np.ndarray, y: np.ndarray, fill: int = 0xFF
) -> tuple[Cache, np.ndarray]:
    """A cache with the tokens of one row [L, K, H] on shuffled blocks, and their slots."""
    length = len(x)
    blocks = -(-length // block_size) + 2
    cache = Cache(dtype, block_size, x.shape[1], x.shape[2], blocks, fill)
    row = Row(np.random.default_rng(0).permutation(blocks).astype(np.int32), length)
    batch = Batch([row], [length], block_size)
    with Team(2, isa) as team:
        team.run([store_op(x.reshape(length, -1), y.reshape(length, -1), cache)], batch)
    return cache, batch.slot_T


@pytest.mark.parametrize("isa", isa_levels())
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [abi.KV_BF16, abi.KV_INT8])
def test_reads_back_rounded(dtype: int, shape: tuple[int, int, int], isa: str) -> None:
    block_size, kv_heads, head_dim = shape
    rng = np.random.default_rng(7)
    x, y = rng.standard_normal((2, 53, kv_heads, head_dim), np.float32) * rng.lognormal(0, 3, (2, 53, 1, 1)).astype("f")
    x[5], y[6] = 0, 0
    cache, slots = stored(dtype, block_size, isa, x, y)
    expected = to_bf16 if dtype == abi.KV_BF16 else int8_rounded
    key, value = cache.read(slots)
    np.testing.assert_array_equal(key, expected(x))
    np.testing.assert_array_equal(value, expected(y))


@pytest.mark.parametrize("isa", isa_levels())
@pytest.mark.parametrize("dtype", [abi.KV_BF16, abi.KV_INT8])
def test_other_slots_stay(dtype: int, isa: str) -> None:
    """19 tokens in blocks of 16: the bytes of all other slots are still those the cache began with."""
    x, y = np.random.default_rng(1).standard_normal((2, 19, 2, 16), np.float32)
    cache, slots = stored(dtype, 16, isa, x, y, fill=0x11)  # finite numbers, so that a changed code shows
    before = Cache(dtype, 16, 2, 16, cache.blocks, fill=0x11)
    others = np.setdiff1d(np.arange(cache.blocks * 16), slots)
    for now, then in zip(cache.read(others), before.read(others), strict=True):
        np.testing.assert_array_equal(now, then)


def test_int8_scales_at_the_ends() -> None:
    """Values beyond float16's scales saturate, values below them become 0, and neither gives NaN."""
    x = np.full((1, 1, 16), 3e38, np.float32)
    y = np.full((1, 1, 16), 1e-30, np.float32)
    cache, slots = stored(abi.KV_INT8, 16, isa_levels()[0], x, y)
    key, value = cache.read(slots)
    np.testing.assert_array_equal(key, np.float32(65504) * 127)
    np.testing.assert_array_equal(value, 0)


@pytest.mark.parametrize("head_dim", [16, 20, 34])
@pytest.mark.parametrize("dtype", [abi.KV_BF16, abi.KV_INT8])
def test_the_library_reads_the_same(dtype: int, head_dim: int) -> None:
    """octavo_kv_read against this test's own reading of the layout, in any order of slots."""
    x, y = np.random.default_rng(1).standard_normal((2, 40, 2, head_dim), np.float32)
    cache, slots = stored(dtype, 32, isa_levels()[0], x, y)
    slots = np.ascontiguousarray(slots[::-3])
    key, value = np.empty((2, len(slots), 2, head_dim), np.float32)
    load_library().octavo_kv_read(cache.kv, slots.ctypes.data, len(slots), key.ctypes.data, value.ctypes.data)
    np.testing.assert_array_equal(np.stack([key, value]), np.stack(cache.read(slots)))


@pytest.mark.parametrize("isa", isa_levels())
@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize("dtype", [abi.KV_BF16, abi.KV_INT8])
def test_rope_store_equals_its_parts(dtype: int, norms: bool, isa: str) -> None:
    """Queries, keys and cache are those of RMS_NORM (twice), ROPE (twice) and STORE_KV, bit for bit."""
    separate, fused = _roped_and_stored(dtype, norms, isa, False), _roped_and_stored(dtype, norms, isa, True)
    for one, other in zip(separate, fused, strict=True):
        np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))


def _roped_and_stored(dtype: int, norms: bool, isa: str, fused: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries, keys and cache afterwards: 37 tokens, 4 query heads on 2 kv heads of 20 dims, 16 of which are turned."""
    rng = np.random.default_rng(3)
    length, pairs = 37, 8
    cos_sin = rng.standard_normal((length, 2, pairs), np.float32)
    q_norm_H, k_norm_H = rng.standard_normal((2, 20), np.float32)
    q_TC = rng.standard_normal((length, 80), np.float32)
    k_TC, value_TC = rng.standard_normal((2, length, 40), np.float32)
    cache = Cache(dtype, 16, 2, 20, 3)
    q, k = view(q_TC, 4), view(k_TC, 2)
    rope = {"rows": abi.TOKENS, "vector": cos_sin.ctypes.data, "extra": pairs}
    if fused:
        op = abi.Op(kind=abi.OpKind.ROPE_STORE, x=q, y=k, z=view(value_TC, 2), kv=ctypes.pointer(cache.kv), **rope)
        if norms:
            op.vector_2, op.vector_3, op.number = q_norm_H.ctypes.data, k_norm_H.ctypes.data, 1e-5
        ops = [op]
    else:
        norm = {"kind": abi.OpKind.RMS_NORM, "rows": abi.TOKENS, "number": 1e-5}
        both = [abi.Op(x=q, out=q, vector=q_norm_H.ctypes.data, **norm)]
        both.append(abi.Op(x=k, out=k, vector=k_norm_H.ctypes.data, **norm))
        turns = [abi.Op(kind=abi.OpKind.ROPE, x=x, **rope) for x in (q, k)]
        ops = [*(both if norms else []), *turns, store_op(k_TC, value_TC, cache)]
    with Team(2, isa) as team:
        team.run(ops, Batch([Row(np.array([2, 0, 1], np.int32), length)], [length], 16))
    return q_TC, k_TC, cache.data


@pytest.mark.parametrize(
    "shape",
    [(2, 16, 1, 64), (0, 8, 1, 64), (0, 24, 1, 64), (0, 0, 1, 64), (0, 16, 0, 64), (0, 16, 1, 0), (1, 16, 1, 514)],
)
def test_impossible_shapes_are_refused(shape: tuple[int, int, int, int]) -> None:
    assert load_library().octavo_kv_block_bytes(*shape) == -1
