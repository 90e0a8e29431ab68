"""Times of the attention kernels against what the machine can do: prefill in GFLOP/s, decode in GB/s of cache read,
int8 against bf16, shuffled block tables against contiguous ones. Not a test; run as
`python tests/native/bench_attention.py [threads]`.

Variants alternate in many rounds. A time is the best of them, because other work on the machine only ever adds to it; a
ratio is the median of the ratios within rounds, because both sides of a round had the same machine. A step's calls are
run over several layers' caches, as a model does, so that what one layer reads does not stay in the processor's caches
for the next round.
"""

from __future__ import annotations

import ctypes
import mmap
import statistics
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


class Times:
    """Seconds of one layer by variant, a value for each round."""

    def __init__(self, team: Team, programs: dict[str, Program], rounds: int):
        self._rounds: dict[str, list[float]] = {name: [] for name in programs}
        names = list(programs)
        for number in range(rounds + 1):
            for name in names:
                seconds = programs[name].seconds(team)
                if number > 0:
                    self._rounds[name].append(seconds)
            names.reverse()  # whoever comes second over the same memory finds a little of it in the cache

    def best(self) -> dict[str, float]:
        return {name: min(values) for name, values in self._rounds.items()}

    def ratio(self, name: str, other: str) -> float:
        return statistics.median(one / two for one, two in zip(self._rounds[name], self._rounds[other], strict=True))


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
    times = Times(team, programs, rounds)
    for variant, seconds in times.best().items():
        nbytes = programs[variant].layers.kvs[0].block_bytes / BLOCK * sum(lengths)
        print(f"{name:24s} {variant:18s} {seconds * 1e6:9.1f} us  {nbytes / seconds / 1e9:6.1f} GB/s")
    paged = [times.ratio(f"{kind} shuffled", f"{kind} contiguous") for kind in ("bf16", "int8")]
    narrow = times.ratio("int8 shuffled", "bf16 shuffled")
    print(f"{name:24s} shuffled/contiguous {paged[0]:.3f} bf16, {paged[1]:.3f} int8; int8/bf16 {narrow:.3f}")


def prefill(team: Team, tokens: int, context: int, rounds: int) -> None:
    """The last `tokens` of a row of `context`; FLOPs are those of the pairs that causality allows."""
    pairs = tokens * (context - tokens) + tokens * (tokens + 1) / 2
    programs = {}
    for kind, dtype in (("bf16", abi.KV_BF16), ("int8", abi.KV_INT8)):
        rows, blocks = rows_of([context], True)
        programs[kind] = Program(Layers(dtype, blocks, 8), Batch(rows, [tokens], BLOCK))
    for kind, seconds in Times(team, programs, rounds).best().items():
        rate = pairs * HEADS * HEAD_DIM * 4 / seconds / 1e9
        print(f"prefill {tokens} of {context:6d}    {kind:18s} {seconds * 1e6:9.1f} us  {rate:6.0f} GFLOP/s")


def main() -> None:
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with Team(threads) as team:
        prefill(team, 512, 512, 30)
        prefill(team, 512, 4096, 5)
        decode(team, "decode 1 x 8192", [8192], 16, 40)
        decode(team, "decode 8 x 8192", [8192] * 8, 4, 20)
        decode(team, "decode 1 x 4096", [4096], 24, 40)
        decode(team, "decode 64 x ~230", [100 + 4 * i for i in range(64)], 12, 40)
        decode(team, "decode 1 x 200", [200], 60, 40)


if __name__ == "__main__":
    main()
