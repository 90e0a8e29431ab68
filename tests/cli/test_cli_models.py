"""pull, list and rm on a store with models placed by hand: what is shown, asked, deleted and refused."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from octavo.checkpoint.installed import Manifest, place
from octavo.cli.main import app


def octavo(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=answer)


@pytest.fixture
def placed(store: Path) -> Path:
    """A store with the model "small" of 3,000 bytes."""
    staged = store / ".partial" / "staged"
    staged.mkdir(parents=True)
    (staged / "small.gguf").write_bytes(bytes(3000))
    place(store, staged, Manifest(name="small", file="small.gguf", bytes=3000, license="MIT", source="by hand"))
    return store


def test_list_shows_what_is_here_and_what_could_be(placed: Path) -> None:
    result = octavo("list")
    assert result.exit_code == 0
    small, default = (line for line in result.stdout.splitlines() if line.startswith(("small ", "smollm2 ")))
    assert small.split() == ["small", "2.9", "KiB", "MIT", "by", "hand"]
    assert "not here: octavo pull smollm2" in default


def test_pull_of_a_model_that_is_here_tells_where(placed: Path) -> None:
    result = octavo("pull", "small")
    assert result.exit_code == 0
    assert result.stdout.strip() == f"small is at {placed / 'small' / 'small.gguf'}"


def test_pull_of_an_unknown_name_says_what_there_is() -> None:
    result = octavo("pull", "smolm2")
    assert result.exit_code == 1
    assert "smollm2" in result.stderr
    assert "Traceback" not in result.output


def test_rm_asks_and_a_no_keeps_the_model(placed: Path) -> None:
    result = octavo("rm", "small", answer="n\n")
    assert result.exit_code == 1
    assert "Delete small (2.9 KiB)?" in result.stdout
    assert (placed / "small").is_dir()


def test_rm_asks_and_a_yes_deletes(placed: Path) -> None:
    result = octavo("rm", "small", answer="y\n")
    assert result.exit_code == 0
    assert not (placed / "small").exists()


def test_rm_yes_does_not_ask(placed: Path) -> None:
    result = octavo("rm", "small", "--yes")
    assert result.exit_code == 0
    assert result.stdout == "deleted small, 2.9 KiB freed\n"
    assert not (placed / "small").exists()


def test_rm_of_an_unknown_name_suggests_and_deletes_nothing(placed: Path) -> None:
    result = octavo("rm", "small", "smal", "--yes")
    assert result.exit_code == 1
    assert "did you mean 'small'?" in result.stderr
    assert (placed / "small").is_dir()


def test_rm_in_an_empty_store_says_so() -> None:
    result = octavo("rm", "small", "--yes")
    assert result.exit_code == 1
    assert "the store is empty" in result.stderr
