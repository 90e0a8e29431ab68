"""The part of `octavo doctor` about the native backend: whether its library is here, which instructions it uses, how
fast this machine is with them, and what becomes of each checkpoint format. Computes; changes nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.markup import escape

from octavo.cli.console import plain_table
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from octavo.ops.native.abi import Weight

COMPILERS = ("c++", "g++", "clang++")
SLOW_LEVEL = "scalar"


def native_table(cores: int) -> Table:
    """The library, its instruction set and the machine's speeds; or why it is absent and what to do."""
    from octavo.ops.native.library import library_path, load_library

    table = plain_table("", "")
    try:
        load_library()
    except ConfigError as error:
        found = next((path for path in map(shutil.which, COMPILERS) if path), None)
        table.add_row("library", f"[bold red]missing[/]: {escape(str(error))}")
        table.add_row("compiler", f"{found} is here now" if found else f"none of {', '.join(COMPILERS)} is here")
        table.add_row("effect", "the reference backend serves, many times slower")
        return table
    table.add_row("library", str(library_path()))
    for row in (*_isa_rows(), *_speed_rows(cores)):
        table.add_row(*row)
    return table


def format_table() -> Table:
    """What becomes of a matrix in each checkpoint format, and what computes with it. ConfigError without library."""
    from octavo.ops.native.weights import packing
    from octavo.quant.formats import FORMATS

    table = plain_table("format", "kept as", "multiplied with")
    for name in sorted(FORMATS):
        form = packing(name)
        table.add_row(name, _kept_as(name, form), _activations(form))
    return table


def _isa_rows() -> Iterator[tuple[str, str]]:
    from octavo.ops.native.probe import cpu_features, isa_levels

    levels = isa_levels()
    used = next(level.name for level in levels if not level.lacks)
    yield "CPU features", cpu_features() or "none that the kernels ask for"
    for level in levels:
        if level.lacks:
            yield f"level {level.name}", f"not here: the CPU lacks {level.lacks}"
        elif level.name == used and used == SLOW_LEVEL:
            yield f"level {level.name}", "[yellow]in use; it works everywhere and is slow[/]"
        else:
            yield f"level {level.name}", "[green]in use[/]" if level.name == used else "works too"


def _speed_rows(cores: int) -> Iterator[tuple[str, str]]:
    from octavo.ops.native.probe import measure_speed

    for threads in sorted({1, cores}):
        label = "1 thread" if threads == 1 else f"{threads} threads"
        try:
            speed = measure_speed(threads)
        except MemoryError:
            yield label, "not measured: 256 MiB of memory are not free"
            continue
        yield label, f"reads {speed.read:.1f} GB/s; at most {speed.int8:.0f} GOP/s int8, {speed.bf16:.0f} GFLOP/s bf16"


def _kept_as(name: str, form: Weight) -> str:
    from octavo.ops.native.weights import has_packing

    if not has_packing(name):
        return f"{_form(form)}, through float32: no packed form of its own"
    return _form(form)


def _form(form: Weight) -> str:
    from octavo.ops.native import abi

    if form.kind == abi.KIND_CODES:
        table = " through a table" if form.has_lut else ""
        return f"{form.bits} bits{table}, a scale{' and a minimum' if form.has_min else ''} per {form.group}"
    return {abi.KIND_BF16: "bf16", abi.KIND_F16: "fp16", abi.KIND_F32: "fp32"}[form.kind]


def _activations(form: Weight) -> str:
    from octavo.ops.native import abi

    if form.kind == abi.KIND_CODES:
        return "int8 activations"
    return "bf16 activations" if form.kind == abi.KIND_BF16 else "fp32 activations"
