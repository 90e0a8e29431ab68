"""`octavo doctor`: what this machine is, which backends work on it, and whether they compute what the reference says.
Reads and computes only; nothing is changed or downloaded.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from octavo import __version__
from octavo.cli.console import output, plain_table, print_error, print_table
from octavo.config import DEFAULT_MODEL, format_bytes
from octavo.errors import ConfigError, OctavoError

if TYPE_CHECKING:
    from rich.table import Table

    from octavo.ops.backend import Backend
    from octavo.ops.conformance import Conformance

REQUIRED = ("numpy", "ml_dtypes", "tokenizers", "gguf", "msgspec", "starlette", "uvicorn")
NOT_NEEDED = ("torch", "triton")


def doctor() -> None:
    """Show what this machine can do, and check by computing that it does it right."""
    console = output()
    print_table("Machine", _machine_table())
    print_table("Models", _store_table())
    _print_native()
    healthy = 0
    for name, backend, refusal in _backends():
        if backend is None:
            console.print(f"[yellow]backend {name}: not here: {refusal}[/]")
            continue
        results = _conformance(backend)
        sound = isinstance(results, list) and all(result.ok for result in results)
        healthy += sound
        if isinstance(results, list):
            print_table(f"Backend {name}, {backend.dtype}; reads {_formats(backend)}", _backend_table(results))
        else:
            print_error(results)
    if healthy == 0:
        console.print("[bold red]No backend computes correctly on this machine: it cannot serve.[/]")
        raise typer.Exit(1)
    console.print(f"[bold green]This machine can serve[/]: {healthy} backend(s) agree with the float64 reference.")


def _machine_table() -> Table:
    import psutil

    from octavo.runner.cores import usable_cores
    from octavo.runner.free_memory import free_memory

    table = plain_table("", "")
    table.add_row("octavo", f"{__version__}, Python {platform.python_version()} on {platform.system()}")
    table.add_row("CPU", f"{_cpu_name()}, {usable_cores()} of {os.cpu_count()} cores usable")
    memory = psutil.virtual_memory().total
    table.add_row("memory", f"{format_bytes(memory)}, of which {format_bytes(free_memory())} can be used now")
    table.add_row("packages", ", ".join(f"{name} {_version(name) or '[red]missing[/]'}" for name in REQUIRED))
    for name in NOT_NEEDED:
        version = _version(name)
        table.add_row(name, f"{version} (not needed by this version)" if version else "absent (not needed)")
    return table


def _print_native() -> None:
    from octavo.cli.doctor_native import format_table, native_table
    from octavo.runner.cores import usable_cores

    print_table("Native library", native_table(usable_cores()))
    with suppress(ConfigError):  # the table above says why
        print_table("Native kernels by checkpoint format", format_table())


def _store_table() -> Table:
    from octavo.checkpoint.store import Store, default_store_dir

    table = plain_table("", "")
    root = default_store_dir()
    models = Store(root).list()
    table.add_row("store", f"{root}, {len(models)} model(s), {format_bytes(sum(model.bytes for model in models))}")
    present = any(model.name == DEFAULT_MODEL for model in models)
    table.add_row(
        "default model", DEFAULT_MODEL + (" is here" if present else f" is fetched by: octavo pull {DEFAULT_MODEL}")
    )
    return table


def _backends() -> list[tuple[str, Backend | None, str]]:
    """(name, backend, "") of each that works here; (name, None, reason) of each that does not."""
    from octavo.ops.choose import PREFERENCE, Wish
    from octavo.runner.cores import usable_cores

    found: list[tuple[str, Backend | None, str]] = []
    for name, construct in PREFERENCE:
        try:
            backend = construct(Wish(cores=usable_cores()))
        except OctavoError as error:
            found.append((name, None, str(error)))
        else:
            found.append((name, backend, ""))
    return found


def _conformance(backend: Backend) -> list[Conformance] | str:
    """The outcome of every case, or what an op raised: a broken backend must not end the report."""
    from octavo.ops.conformance import run_conformance

    try:
        return run_conformance(backend)
    except Exception as error:
        return f"backend {backend.name}: an op failed with {type(error).__name__}: {error}"


def _formats(backend: Backend) -> str:
    from octavo.quant.formats import FORMATS

    return ", ".join(sorted(kind for kind in FORMATS if backend.refuse(frozenset({kind}), 64, 16) is None))


def _backend_table(results: list[Conformance]) -> Table:
    table = plain_table("op", "case", "largest error", "allowed", "")
    for result in results:
        verdict = "[green]ok[/]" if result.ok else "[bold red]WRONG[/]"
        table.add_row(result.op, result.shape, f"{result.max_error:.1e}", f"{result.tolerance:.0e}", verdict)
    return table


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine()
