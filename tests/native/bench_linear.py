"""Measures LINEAR beside the machine's own limits: int8 and bf16 peak, memory bandwidth. Not a test; run it as
`python tests/native/bench_linear.py [--quick]`. Every figure is the best of many short runs, all kinds taking turns.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import time

import numpy as np

from octavo.ops.native.abi import (
    KIND_BF16,
    KIND_CODES,
    PROBE_BF16,
    PROBE_INT8,
    PROBE_READ,
    Op,
    OpKind,
    Step,
    View,
    Weight,
)
from octavo.ops.native.library import load_library

FORMATS = {  # bits, group, has_min, zero
    "Q4_0": (4, 32, 0, 8),
    "Q4_1": (4, 32, 1, 0),
    "Q8_0": (8, 32, 0, 128),
    "Q6_K": (8, 16, 0, 32),
}
SHAPES = ((960, 576), (576, 576), (3072, 576), (576, 1536), (49152, 576))
LAYER = SHAPES[:4]


def huge(size: int) -> np.ndarray:
    """Zeroed bytes, aligned to 2 MiB, in huge pages where the system gives them."""
    align = 2 << 20
    region = mmap.mmap(-1, size + align, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    region.madvise(mmap.MADV_HUGEPAGE)
    data = np.frombuffer(region, np.uint8)
    start = -data.ctypes.data % align
    return data[start : start + size]


class Bench:
    """One team, and programs of ops over arrays that live as long as it does."""

    def __init__(self, threads: int, isa: str | None) -> None:
        self.library = load_library()
        self.team = self.library.octavo_team_create(threads, isa.encode() if isa else None)
        self.kept: list[object] = []
        self.random = np.random.default_rng(0)

    def array(self, size: int) -> int:
        data = huge(size)
        data[...] = self.random.integers(0, 120, size, dtype=np.uint8)
        self.kept.append(data)
        return data.ctypes.data

    def weight(self, kind: int, rows: int, columns: int, form: tuple[int, int, int, int] = (8, 32, 0, 0)) -> Weight:
        bits, group, has_min, zero = form
        weight = Weight(kind, bits, group, has_min, zero, rows=rows, columns=columns)
        weight.data = self.array(self.library.octavo_weight_layout(ctypes.byref(weight)))
        self.kept.append(weight)
        return weight

    def linear(self, weight: Weight, tokens: int) -> Op:
        if weight.kind == KIND_CODES:
            stride = (weight.padded_columns + weight.padded_columns // 32 * 20 + 63) // 64 * 64
            x = View(self.array(tokens * stride), stride, weight.columns)
        else:
            x = View(self.array(tokens * weight.padded_columns * 2), weight.padded_columns, weight.columns)
        out = View(self.array(tokens * weight.rows * 4), weight.rows, weight.rows)
        return Op(int(OpKind.LINEAR), tokens, x=x, out=out, weight=ctypes.pointer(weight))

    def probe(self, what: int, tasks: int, x: View | None = None) -> Op:
        return Op(int(OpKind.PROBE), tasks, x=x or View(), extra=what)

    def seconds(self, programs: dict[str, list[Op]], rounds: int, budget: float = 0.002) -> dict[str, float]:
        """The best time of each program; short ones are repeated within a run until it takes about `budget` seconds."""
        step = Step(tokens=1)
        best = dict.fromkeys(programs, 1e9)
        arrays = {}
        for name, ops in programs.items():
            once = (Op * len(ops))(*ops)
            begin = time.perf_counter()
            for _ in range(3):
                self.library.octavo_run(self.team, once, len(ops), ctypes.byref(step))
            repeats = max(1, int(budget * 3 / (time.perf_counter() - begin)))
            arrays[name] = (Op * (len(ops) * repeats))(*ops * repeats), repeats
        for _ in range(rounds):
            for name, (array, repeats) in arrays.items():
                begin = time.perf_counter()
                self.library.octavo_run(self.team, array, len(array), ctypes.byref(step))
                best[name] = min(best[name], (time.perf_counter() - begin) / repeats)
        return best


def limits(bench: Bench, rounds: int) -> tuple[float, float, float]:
    """int8 GOP/s, bf16 GFLOP/s, GB/s of reading 96 MB."""
    row = 1 << 16
    memory = View(bench.array(96 * 4 * row), row // 4 * 4, row)
    programs = {
        "int8": [bench.probe(PROBE_INT8, 64)],
        "bf16": [bench.probe(PROBE_BF16, 64)],
        "read": [bench.probe(PROBE_READ, 96 * 4, memory)],
    }
    best = bench.seconds(programs, rounds)
    return 64 * 2**21 / best["int8"] / 1e9, 64 * 2**21 / best["bf16"] / 1e9, 96 * 4 * row * 4 / best["read"] / 1e9


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--isa")
    parser.add_argument("--formats", default="Q4_1,Q4_0,Q8_0")
    parser.add_argument("--tokens", default="2,4,8,16,23,64,512")
    parser.add_argument("--skip", default="", help="of: gemm, stream, bf16")
    options = parser.parse_args()
    tokens = [int(m) for m in options.tokens.split(",")]
    bench = Bench(options.threads, options.isa)
    int8, bf16, read = limits(bench, options.rounds)
    print(f"limits: int8 {int8:.0f} GOP/s, bf16 {bf16:.0f} GFLOP/s, read {read:.1f} GB/s")
    for name in options.formats.split(",") if "gemm" not in options.skip else ():
        for rows, columns in SHAPES:
            weight = bench.weight(KIND_CODES, rows, columns, FORMATS[name])
            programs = {str(m): [bench.linear(weight, m)] for m in tokens if rows < 10000 or m <= 64}
            best = bench.seconds(programs, options.rounds)
            report(f"{name} {rows}x{columns}", best, rows * columns, int8)
            bench.kept.clear()
    if "bf16" not in options.skip:
        for rows, columns in SHAPES[:4]:
            weight = bench.weight(KIND_BF16, rows, columns)
            programs = {str(m): [bench.linear(weight, m)] for m in tokens}
            report(f"bf16 {rows}x{columns}", bench.seconds(programs, options.rounds), rows * columns, bf16)
            bench.kept.clear()
    if "stream" not in options.skip:
        for name in [*options.formats.split(","), "bf16"]:
            stream(bench, name, read, options.rounds)


def report(name: str, best: dict[str, float], weights: int, peak: float) -> None:
    cells = []
    for m, seconds in best.items():
        rate = 2 * weights * int(m) / seconds / 1e9
        cells.append(f"M={m}: {rate:.0f} ({100 * rate / peak:.0f}%)")
    print(f"{name:16s} " + "  ".join(cells), flush=True)


def stream(bench: Bench, name: str, read: float, rounds: int) -> None:
    """M=1 over 30 layers of weights and a head, more than the caches hold."""
    kind = KIND_BF16 if name == "bf16" else KIND_CODES
    form = FORMATS.get(name, (8, 32, 0, 0))
    weights = [bench.weight(kind, *shape, form) for _ in range(30) for shape in LAYER]
    head = bench.weight(kind, 49152, 576, (8, 32, 0, 0) if kind == KIND_BF16 else FORMATS["Q8_0"])
    weights.append(head)
    size = sum((w.rows + 15) // 16 * w.panel_bytes for w in weights)
    best = bench.seconds({"all": [bench.linear(w, 1) for w in weights], "head": [bench.linear(head, 1)]}, rounds)
    rate = size / best["all"] / 1e9
    head_rate = head.rows // 16 * head.panel_bytes / best["head"] / 1e9
    print(
        f"{name} M=1 over {size / 1e6:.0f} MB: {1e3 * best['all']:.2f} ms, {rate:.1f} GB/s "
        f"({100 * rate / read:.0f}% of reading); head alone (cached) {head_rate:.1f} GB/s"
    )
    bench.kept.clear()


if __name__ == "__main__":
    main()
