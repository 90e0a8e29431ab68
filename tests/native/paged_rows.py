"""Paged KV caches for the kernel tests: blocks in native layout, rows of tokens in them, and steps over these rows.

What the cache holds is read back here by the layout's description, not by the library's code. Slots that no token was
stored in hold NaN bits, and table entries that no kernel may look at point far outside.

Shapes: T tokens in the step, R rows, N query heads, K kv heads, H head dim, B tokens per block, L tokens of a row.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import numpy as np

from octavo.ops.native import abi
from octavo.ops.native.library import load_library

GROUP = 16
UNMAPPED = 2**31 - 1


def aligned(nbytes: int, fill: int = 0) -> np.ndarray:
    """Bytes that begin at a multiple of 64."""
    raw = np.full(nbytes + 64, fill, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


def to_bf16(values: np.ndarray) -> np.ndarray:
    """float32 rounded to the nearest bf16, as float32."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32)


@dataclass
class Team:
    """A team of threads at one ISA level; a context manager."""

    threads: int = 1
    isa: str | None = None
    handle: int = 0

    def __enter__(self) -> Team:
        self.handle = load_library().octavo_team_create(self.threads, self.isa.encode() if self.isa else None)
        assert self.handle
        return self

    def __exit__(self, *_: object) -> None:
        load_library().octavo_team_free(self.handle)

    def run(self, ops: list[abi.Op], batch: Batch) -> None:
        load_library().octavo_run(self.handle, (abi.Op * len(ops))(*ops), len(ops), ctypes.byref(batch.step))


def isa_levels() -> list[str]:
    """The levels that this CPU runs."""
    library = load_library()
    levels = []
    for name in ("avx512", "avx2", "scalar"):
        team = library.octavo_team_create(1, name.encode())
        if team:
            levels.append(name)
            library.octavo_team_free(team)
    return levels


def view(array: np.ndarray, heads: int = 0) -> abi.View:
    return abi.View(array.ctypes.data, array.strides[0] // array.itemsize, array[0].size, heads)


@dataclass
class Cache:
    """One layer's blocks, filled with NaN bits (0xFF: NaN as bf16 and float16, -1 as int8) or another byte."""

    dtype: int
    block_size: int
    kv_heads: int
    head_dim: int
    blocks: int
    fill: int = 0xFF
    data: np.ndarray = field(init=False)
    kv: abi.KV = field(init=False)

    def __post_init__(self) -> None:
        block_bytes = load_library().octavo_kv_block_bytes(self.dtype, self.block_size, self.kv_heads, self.head_dim)
        self.data = aligned(block_bytes * self.blocks, self.fill)
        self.kv = abi.KV(self.data.ctypes.data, block_bytes, self.dtype, self.block_size, self.kv_heads, self.head_dim)

    def read(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values of slots, each [L, K, H] float32 (int8 ones times their scales)."""
        int8 = self.dtype == abi.KV_INT8
        padded = -(-self.head_dim // 16) * 16
        element = 1 if int8 else 2
        half = padded * GROUP * element
        groups = self.data.reshape(self.blocks, self.kv_heads, self.block_size // GROUP, -1)
        block, offset = slots // self.block_size, slots % self.block_size
        lane = offset % GROUP
        group_LKG = groups[block, :, offset // GROUP]  # [L, K, bytes of a group]
        rows = np.arange(len(slots))
        key = group_LKG[..., :half].reshape(len(slots), self.kv_heads, -1, GROUP, 4)[rows, :, :, lane]
        value = group_LKG[..., half : 2 * half].reshape(len(slots), self.kv_heads, GROUP // 2, padded, 2 * element)
        value = value.reshape(len(slots), self.kv_heads, GROUP // 2, padded, 2, element)[
            rows, :, lane // 2, :, lane % 2
        ]
        key_LKH, value_LKH = self._numbers(key, True), self._numbers(value, False)
        if int8:
            scales = np.ascontiguousarray(group_LKG[..., 2 * half :]).view(np.float16).astype(np.float32)
            key_LKH = key_LKH * scales[rows, :, lane][..., None]
            value_LKH = value_LKH * scales[rows, :, GROUP + lane][..., None]
        return key_LKH[..., : self.head_dim], value_LKH[..., : self.head_dim]

    def _numbers(self, raw: np.ndarray, keys: bool) -> np.ndarray:
        flat = np.ascontiguousarray(raw).reshape(*raw.shape[:2], -1)
        if self.dtype == abi.KV_INT8:
            return flat.astype(np.float32) - 128 if keys else flat.view(np.int8).astype(np.float32)
        return (flat.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


@dataclass
class Row:
    """A sequence: its table and how many of its tokens are in the cache."""

    table: np.ndarray
    length: int

    def slots(self, positions: np.ndarray, block_size: int) -> np.ndarray:
        return self.table[positions // block_size] * block_size + positions % block_size


class Batch:
    """Step arrays for rows with `counts` queries each; the last `count` tokens of each row are its queries."""

    def __init__(self, rows: list[Row], counts: list[int], block_size: int, hidden_blocks: list[int] | None = None):
        width = max(len(row.table) for row in rows) + 1
        self.table_RW = np.full((len(rows), width), UNMAPPED, np.int32)
        for r, row in enumerate(rows):
            used = -(-row.length // block_size)
            first = hidden_blocks[r] if hidden_blocks else 0
            self.table_RW[r, first:used] = row.table[first:used]
        spans = [np.arange(row.length - count, row.length) for row, count in zip(rows, counts, strict=True)]
        self.position_T = np.concatenate(spans).astype(np.int32)
        self.slot_T = np.concatenate(
            [row.slots(span, block_size) for row, span in zip(rows, spans, strict=True)]
        ).astype(np.int32)
        self.query_start_R1 = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        self.kv_len_R = np.array([row.length for row in rows], np.int32)
        self.step = abi.Step(
            tokens=len(self.position_T),
            rows=len(rows),
            table_width=width,
            position_T=self.position_T.ctypes.data,
            slot_T=self.slot_T.ctypes.data,
            query_start_R1=self.query_start_R1.ctypes.data,
            kv_len_R=self.kv_len_R.ctypes.data,
            table_RW=self.table_RW.ctypes.data,
            table_stride=width,
        )


def store_op(key_TC: np.ndarray, value_TC: np.ndarray, cache: Cache) -> abi.Op:
    """STORE_KV of a step's keys and values [T, K * H]."""
    return abi.Op(
        kind=abi.OpKind.STORE_KV,
        rows=abi.TOKENS,
        x=view(key_TC, cache.kv_heads),
        y=view(value_TC),
        kv=ctypes.pointer(cache.kv),
    )


def attend(team: Team, cache: Cache, batch: Batch, q_TNH: np.ndarray, scale: float, window: int = 0) -> np.ndarray:
    """ATTENTION and its JOIN; the output [T, N, H]. It begins as NaN, so that what is not written shows."""
    tokens, heads, head_dim = q_TNH.shape
    query_TC = np.ascontiguousarray(q_TNH.reshape(tokens, -1))
    out_TC = np.full_like(query_TC, np.nan)
    longest = int(batch.kv_len_R.max())
    scratch = aligned(load_library().octavo_attention_scratch_bytes(tokens, heads, head_dim, longest), 0xFF)
    fields = {
        "rows": abi.TOKENS,
        "x": view(query_TC, heads),
        "out": view(out_TC, heads),
        "kv": ctypes.pointer(cache.kv),
        "number": scale,
        "extra": window,
        "scratch": scratch.ctypes.data,
    }
    team.run([abi.Op(kind=kind, **fields) for kind in (abi.OpKind.ATTENTION, abi.OpKind.ATTENTION_JOIN)], batch)
    return out_TC.reshape(q_TNH.shape)
