"""octavo doctor: its verdict follows what the backends compute, and a broken one does not break the report."""

import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from octavo.cli.main import app
from octavo.errors import ConfigError
from octavo.ops import choose
from octavo.ops.backend import Backend
from octavo.ops.native import library, probe
from octavo.ops.native.probe import isa_levels
from octavo.ops.reference.backend import ReferenceBackend


class Wrong(ReferenceBackend):
    """Adds one too many."""

    def add(self, x_TD: np.ndarray, y_TD: np.ndarray, out_TD: np.ndarray) -> None:
        np.add(x_TD, y_TD + 1, out=out_TD)


class Raising(ReferenceBackend):
    def add(self, x_TD: np.ndarray, y_TD: np.ndarray, out_TD: np.ndarray) -> None:
        raise RuntimeError("no such instruction")


def refusing(wish: object) -> Backend:
    raise ConfigError("needs a GPU")


def diagnose(monkeypatch: pytest.MonkeyPatch, **backends: object) -> tuple[int, str]:
    monkeypatch.setattr(choose, "PREFERENCE", tuple(backends.items()))
    result = CliRunner().invoke(app, ["doctor"])
    return result.exit_code, result.output


def test_a_sound_machine(store: Path) -> None:
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "This machine can serve" in result.output
    for words in (
        "CPU",
        "memory",
        "numpy",
        "torch",
        str(store),
        "octavo pull smollm2",
        "Backend reference",
        "attention",
    ):
        assert words in result.output
    assert "WRONG" not in result.output


def test_a_backend_that_computes_wrongly_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = diagnose(monkeypatch, wrong=lambda wish: Wrong("float32"))
    assert code == 1
    assert "WRONG" in text
    assert "cannot serve" in text


def test_a_backend_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = diagnose(monkeypatch, raising=lambda wish: Raising("float32"))
    assert code == 1
    assert "RuntimeError: no such instruction" in text


def test_one_sound_backend_is_enough_and_refusals_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = diagnose(monkeypatch, fast=refusing, slow=lambda wish: ReferenceBackend("float32"))
    assert code == 0
    assert "backend fast: not here: needs a GPU" in text


def test_what_the_native_library_does_here(store: Path) -> None:
    """The level in use, measured speeds and every checkpoint format; see tests/native/test_probe.py for their truth."""
    text = CliRunner().invoke(app, ["doctor"]).output
    best = next(level.name for level in isa_levels() if not level.lacks)
    assert re.search(rf"level {best} +(in use)", text)
    assert re.search(r"1 thread +reads \d+\.\d GB/s; at most \d+ GOP/s int8, \d+ GFLOP/s bf16", text)
    assert re.search(r"q4_0 +4 bits, a scale per 32 +int8 activations", text)
    assert re.search(r"iq2_xs +8 bits, a scale per 32, through float32: no packed form", text)


def test_a_cpu_without_better_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = [
        probe.IsaLevel("avx512", "avx512f avx512bw"),
        probe.IsaLevel("avx2", "avx2"),
        probe.IsaLevel("scalar", ""),
    ]
    monkeypatch.setattr(probe, "isa_levels", lambda: levels)
    text = CliRunner().invoke(app, ["doctor"]).output
    assert re.search(r"level avx512 +not here: the CPU lacks avx512f avx512bw", text)
    assert re.search(r"level scalar +in use; it works everywhere and is slow", text)


def test_without_the_native_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "library_path", lambda: tmp_path / library.NAME)
    library.load_library.cache_clear()
    try:
        result = CliRunner().invoke(app, ["doctor"])
    finally:
        library.load_library.cache_clear()
    assert result.exit_code == 0, "the reference still serves"
    assert re.search(r"library +missing: .*not part of this installation", result.output)
    assert "backend native: not here: the native library" in result.output
    assert "the reference backend serves, many times slower" in result.output
    assert "Native kernels by checkpoint format" not in result.output
