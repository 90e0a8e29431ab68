"""octavo doctor: its verdict follows what the backends compute, and a broken one does not break the report."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from octavo.cli.main import app
from octavo.errors import ConfigError
from octavo.ops import choose
from octavo.ops.backend import Backend
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
