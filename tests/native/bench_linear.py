"""Measures LINEAR beside the machine's own limits: int8 and bf16 peak, memory bandwidth. Not a test; run it as
`python tests/native/bench_linear.py --help`. Kinds take turns, the limits among them; of each the best run counts,
because others use the machine too.
"""

from __future__ import annotations

import argparse
import ctypes
import time

import numpy as np

from octavo.ops.native.abi import KIND_BF16, KIND_CODES, PROBE_CHAINS, Op, OpKind, Step, View, Weight
from octavo.ops.native.library import load_library
from octavo.ops.native.memory import huge_memory

FORMS = {  # bits, group, has_min, zero
    "Q4_0": (4, 32, 0, 8),
    "Q4_1": (4, 32, 1, 0),
    "Q5_1": (5, 32, 1, 0),
    "Q8_0": (8, 32, 0, 128),
    "Q6_K": (8, 16, 0, 32),
}
HEAD = (49152, 576)
LAYER = ((960, 576), (576, 576), (3072, 576), (576, 1536))
RUN_S = 0.002  # programs are repeated until one run takes about this long
READ_ROW = 1 << 18


class Bench:
    """One team, and programs of ops over arrays that are kept until `forget`."""

    def __init__(self, threads: int, isa: str | None) -> None:
        self.library = load_library()
        self.team = self.library.octavo_team_create(threads, isa.encode() if isa else None)
        self.threads = threads
        self.kept: list[object] = []

    def forget(self) -> None:
        self.kept.clear()

    def array(self, size: int) -> int:
        data = huge_memory(size)
        data[...] = np.resize(np.random.default_rng(0).integers(0, 120, 4099, np.uint8), size)
        self.kept.append(data)
        return int(data.ctypes.data)

    def weight(self, name: str, rows: int, columns: int) -> Weight:
        weight = Weight(KIND_BF16, rows=rows, columns=columns)
        if name != "bf16":
            weight.kind = KIND_CODES
            weight.bits, weight.group, weight.has_min, weight.zero = FORMS[name]
        weight.data = self.array(self.library.octavo_weight_layout(ctypes.byref(weight)))
        self.kept.append(weight)
        return weight

    def linear(self, weight: Weight, tokens: int) -> Op:
        padded = weight.padded_columns
        if weight.kind == KIND_CODES:
            stride = (padded + padded // 32 * 20 + 63) // 64 * 64
            x = View(self.array(tokens * stride), stride, padded)
        else:
            x = View(self.array(tokens * padded * 2), padded, padded)
        out = View(self.array(tokens * weight.rows * 4), weight.rows, weight.rows)
        return Op(OpKind.LINEAR, tokens, x=x, out=out, weight=ctypes.pointer(weight))

    def peak(self, kind: OpKind) -> Op:
        out = View(self.array(64 * self.threads), 16, 16)
        return Op(kind, self.threads, x=View(self.array(256), 0, 256), out=out, extra=20000)

    def reading(self, size: int) -> Op:
        rows = size // READ_ROW
        out = View(self.array(64 * rows), 16, 16)
        return Op(OpKind.PROBE_READ, rows, x=View(self.array(size), READ_ROW, READ_ROW), out=out)

    def seconds(self, programs: dict[str, list[Op]], rounds: int) -> dict[str, float]:
        """The best time of each program."""
        best = dict.fromkeys(programs, 1e9)
        arrays = {}
        for name, ops in programs.items():
            once = self.run((Op * len(ops))(*ops))
            repeats = max(1, int(RUN_S / once))
            arrays[name] = (Op * (len(ops) * repeats))(*ops * repeats), repeats
        for _ in range(rounds):
            for name, (array, repeats) in arrays.items():
                best[name] = min(best[name], self.run(array) / repeats)
        return best

    def run(self, ops: ctypes.Array[Op]) -> float:
        begin = time.perf_counter()
        self.library.octavo_run(self.team, ops, len(ops), ctypes.byref(Step()))
        return time.perf_counter() - begin


def products(bench: Bench, name: str, shape: tuple[int, int], tokens: list[int], rounds: int) -> None:
    """One line: Gop/s and share of the peak for each number of tokens."""
    weight = bench.weight(name, *shape)
    peak_op, inputs = (OpKind.PROBE_BF16, 2) if name == "bf16" else (OpKind.PROBE_INT8, 4)
    programs = {str(m): [bench.linear(weight, m)] for m in tokens}
    best = bench.seconds(programs | {"peak": [bench.peak(peak_op)]}, rounds)
    peak = bench.threads * 20000 * PROBE_CHAINS * 16 * inputs * 2 / best.pop("peak") / 1e9
    cells = []
    for m, seconds in best.items():
        rate = 2 * weight.rows * weight.columns * int(m) / seconds / 1e9
        cells.append(f"M={m}: {rate:.0f} ({rate / peak:.0%})")
    print(f"{name} {shape[0]}x{shape[1]}, peak {peak:.0f}:  " + "  ".join(cells), flush=True)
    bench.forget()


def stream(bench: Bench, name: str, tokens: list[int], rounds: int) -> None:
    """All of a model's weights, which no cache holds, beside reading as many bytes."""
    weights = [bench.weight(name, *shape) for _ in range(30) for shape in LAYER]
    weights.append(bench.weight("bf16" if name == "bf16" else "Q8_0", *HEAD))
    size = sum((w.rows + 15) // 16 * w.panel_bytes for w in weights)
    programs = {str(m): [bench.linear(w, m) for w in weights] for m in tokens}
    best = bench.seconds(programs | {"read": [bench.reading(size)]}, rounds)
    read = size // READ_ROW * READ_ROW / best.pop("read") / 1e9
    for m, seconds in best.items():
        rate = size / seconds / 1e9
        share = f"{rate / read:.0%} of {read:.1f}"
        print(
            f"{name} model of {size / 1e6:.0f} MB, M={m}: {1e3 * seconds:.2f} ms, {rate:.1f} GB/s ({share})", flush=True
        )
    bench.forget()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--isa")
    parser.add_argument("--formats", default="Q4_1,Q4_0,Q8_0,bf16", help=f"of {', '.join(FORMS)}, bf16")
    parser.add_argument("--tokens", default="1,2,4,8,16,23,64,512")
    parser.add_argument("--only", choices=("products", "stream"))
    options = parser.parse_args()
    bench = Bench(options.threads, options.isa)
    tokens = [int(m) for m in options.tokens.split(",")]
    for name in options.formats.split(","):
        if options.only != "stream":
            for shape in LAYER:
                products(bench, name, shape, tokens, options.rounds)
            products(bench, name, HEAD, [m for m in tokens if m <= 64], max(3, options.rounds // 4))
        if options.only != "products":
            stream(bench, name, [m for m in tokens if m <= 8], options.rounds)


if __name__ == "__main__":
    main()
