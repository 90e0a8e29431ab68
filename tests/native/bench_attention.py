"""Times of the attention kernels against what the machine can do: prefill in GFLOP/s, decode in GB/s of cache read,
int8 against bf16, shuffled block tables against contiguous ones. Not a test; run as
`python tests/native/bench_attention.py [threads]`.

Each figure is the best of many rounds in which the variants alternate: other work on the machine only ever adds time.
A step's calls are run over several layers' caches, as a model does, so that what one layer reads does not stay in the
processor's caches for the next round.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import time

import numpy as np
from paged_rows import Batch, Row, Team, aligned, view

from octavo.ops.native import abi
from octavo.ops.native.library import load_library

HEADS, KV_HEADS, HEAD_DIM, BLOCK = 9, 3, 64, 16


class Layers:
    """Caches of several layers in huge pages, filled with random tokens."""

    def __init__(self, dtype: int, blocks: int, layers: int, block_size: int = BLOCK):
        block_bytes = load_library().octavo_kv_block_bytes(dtype, block_size, KV_HEADS, HEAD_DIM)
        self.layer_bytes = block_bytes * blocks
        self.memory = mmap.mmap(-1, self.layer_bytes * layers + (2 << 20))
        self.memory.madvise(mmap.MADV_HUGEPAGE)
        base = np.frombuffer(self.memory, np.uint8)
        start = -base.ctypes.data % (2 << 20)
        self.kvs = [
            abi.KV(base.ctypes.data + start + i * self.layer_bytes, block_bytes, dtype, block_size, KV_HEADS, HEAD_DIM)
            for i in range(layers)
        ]
        self._fill(blocks, block_size)

    def _fill(self, blocks: int, block_size: int) -> None:
        """Stores tokens into the first layer, and copies it to the others."""
        rng = np.random.default_rng(0)
        row = Row(np.arange(blocks, dtype=np.int32), blocks * block_size)
        key, value = rng.standard_normal((2, row.length, KV_HEADS * HEAD_DIM), np.float32)
        store = abi.Op(
            kind=abi.OpKind.STORE_KV, rows=-1, x=view(key, KV_HEADS), y=view(value), kv=ctypes.pointer(self.kvs[0])
        )
        with Team(2) as team:
            team.run([store], Batch([row], [row.length], block_size))
        for kv in self.kvs[1:]:
            ctypes.memmove(kv.data, self.kvs[0].data, self.layer_bytes)


class Program:
    """ATTENTION and JOIN of every layer for one batch."""

    def __init__(self, layers: Layers, batch: Batch, window: int = 0):
        tokens = batch.step.tokens
        self.batch = batch
        self.layers = layers
        self.q = np.random.default_rng(1).standard_normal((tokens, HEADS * HEAD_DIM), np.float32)
        self.out = np.empty_like(self.q)
        longest = int(batch.kv_len_R.max())
        self.scratch = aligned(load_library().octavo_attention_scratch_bytes(tokens, HEADS, HEAD_DIM, longest))
        fields = {"rows": -1, "x": view(self.q, HEADS), "out": view(self.out, HEADS), "number": 0.125, "extra": window}
        self.ops = [
            abi.Op(kind=kind, kv=ctypes.pointer(kv), scratch=self.scratch.ctypes.data, **fields)
            for kv in layers.kvs
            for kind in (abi.OpKind.ATTENTION, abi.OpKind.ATTENTION_JOIN)
        ]

    def seconds(self, team: Team) -> float:
        """Of one layer."""
        start = time.perf_counter()
        team.run(self.ops, self.batch)
        return (time.perf_counter() - start) / len(self.layers.kvs)


def best(team: Team, programs: dict[str, Program], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in programs}
    names = list(programs)
    for _ in range(rounds + 1):
        for name in names:
            times[name].append(programs[name].seconds(team))
        names.reverse()  # whoever comes second over the same memory finds a little of it in the cache
    return {name: min(values[1:]) for name, values in times.items()}


def rows_of(lengths: list[int], shuffled: bool, block_size: int = BLOCK) -> tuple[list[Row], int]:
    needs = [-(-length // block_size) for length in lengths]
    order = np.arange(sum(needs), dtype=np.int32)
    if shuffled:
        order = np.random.default_rng(3).permutation(order)
    tables = np.split(order, np.cumsum(needs)[:-1])
    return [Row(table, length) for table, length in zip(tables, lengths, strict=True)], sum(needs)


def decode(team: Team, name: str, lengths: list[int], layers: int, rounds: int) -> None:
    """bf16 and int8, contiguous and shuffled, for rows with one query each."""
    programs = {}
    for kind, dtype in (("bf16", abi.KV_BF16), ("int8", abi.KV_INT8)):
        blocks = rows_of(lengths, False)[1]
        caches = Layers(dtype, blocks, layers)
        for order in ("contiguous", "shuffled"):
            rows, _ = rows_of(lengths, order == "shuffled")
            programs[f"{kind} {order}"] = Program(caches, Batch(rows, [1] * len(rows), BLOCK))
    took = best(team, programs, rounds)
    for variant, seconds in took.items():
        nbytes = programs[variant].layers.kvs[0].block_bytes / BLOCK * sum(lengths)
        print(f"{name:24s} {variant:18s} {seconds * 1e6:9.1f} us  {nbytes / seconds / 1e9:6.1f} GB/s")
    print(
        f"{name:24s} shuffled/contiguous {took['bf16 shuffled'] / took['bf16 contiguous']:.3f} bf16, "
        f"{took['int8 shuffled'] / took['int8 contiguous']:.3f} int8; "
        f"int8/bf16 {took['int8 shuffled'] / took['bf16 shuffled']:.3f}"
    )


def prefill(team: Team, tokens: int, context: int, rounds: int) -> None:
    """The last `tokens` of a row of `context`; FLOPs are those of the pairs that causality allows."""
    pairs = tokens * (context - tokens) + tokens * (tokens + 1) / 2
    programs = {}
    for kind, dtype in (("bf16", abi.KV_BF16), ("int8", abi.KV_INT8)):
        rows, blocks = rows_of([context], True)
        programs[kind] = Program(Layers(dtype, blocks, 8), Batch(rows, [tokens], BLOCK))
    for kind, seconds in best(team, programs, rounds).items():
        rate = pairs * HEADS * HEAD_DIM * 4 / seconds / 1e9
        print(f"prefill {tokens} of {context:6d}    {kind:18s} {seconds * 1e6:9.1f} us  {rate:6.0f} GFLOP/s")


def main() -> None:
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with Team(threads) as team:
        prefill(team, 512, 512, 30)
        prefill(team, 512, 4096, 5)
        decode(team, "decode 1 x 8192", [8192], 16, 10)
        decode(team, "decode 8 x 8192", [8192] * 8, 4, 5)
        decode(team, "decode 1 x 4096", [4096], 24, 10)
        decode(team, "decode 64 x ~230", [100 + 4 * i for i in range(64)], 12, 10)
        decode(team, "decode 1 x 200", [200], 60, 20)


if __name__ == "__main__":
    main()
