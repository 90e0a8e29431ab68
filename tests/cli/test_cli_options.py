"""Flags are made from the configuration structs: every field has one, with its type, its default and its words."""

from pathlib import Path
from typing import Annotated

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from octavo.cli.options import arguments_of, configured, fields, options_page
from octavo.config import EngineConfig, ServerConfig

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"
CHANGED = EngineConfig(
    model="other", max_len=512, kv_memory="1GiB", block_size=8, watermark=0.5, prefix_cache=False, offline=True
)


def app_that_sees(seen: dict[str, object], *, model: str = "argument") -> typer.Typer:
    app = typer.Typer()

    @app.command()
    @configured(model=model)
    def command(
        engine: EngineConfig,
        server: ServerConfig,
        own: Annotated[int, typer.Option(help="An option of the command itself.")] = 7,
    ) -> None:
        """Do something."""
        seen.update(engine=engine, server=server, own=own)

    return app


def parse(*arguments: str, model: str = "argument") -> dict[str, object]:
    seen: dict[str, object] = {}
    result = CliRunner().invoke(app_that_sees(seen, model=model), list(arguments))
    assert result.exit_code == 0, result.output
    return seen


def test_without_flags_everything_has_its_default() -> None:
    assert parse() == {"engine": EngineConfig(), "server": ServerConfig(), "own": 7}


def test_every_engine_field_is_set_by_its_flag() -> None:
    assert parse(*arguments_of(CHANGED))["engine"] == CHANGED


def test_fields_of_every_type_and_both_structs() -> None:
    seen = parse("m", "--port", "0", "--drain", "1.5", "--served-name", "x", "--own", "3", "--chunk", "16")
    assert seen["engine"] == EngineConfig(model="m", chunk=16)
    assert seen["server"] == ServerConfig(port=0, drain=1.5, served_name="x")
    assert seen["own"] == 3


def test_the_model_may_be_an_option() -> None:
    assert parse("--model", "m", model="option")["engine"] == EngineConfig(model="m")
    assert parse("-m", "m", model="option")["engine"] == EngineConfig(model="m")


@pytest.mark.parametrize("config", [EngineConfig, ServerConfig])
def test_arguments_of_leaves_out_defaults(config: type[msgspec.Struct]) -> None:
    assert arguments_of(config()) == ([EngineConfig().model] if config is EngineConfig else [])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--block-size", "7"], "8, 16, 32"),
        (["--kv-memory", "lots"], "512MiB"),
        (["--port", "70000"], "65535"),
        (["--chunk", "many"], "integer"),
        (["--no-such-flag"], "--no-such-flag"),
    ],
)
def test_a_refused_value_is_a_usage_error(arguments: list[str], words: str) -> None:
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app_that_sees({}), arguments)
    assert result.exit_code == 2
    assert words in result.output
    assert "Traceback" not in result.output


def test_help_shows_every_flag_with_its_words() -> None:
    help_text = " ".join(CliRunner(env={"COLUMNS": "300"}).invoke(app_that_sees({}), ["--help"]).output.split())
    for field in (*fields(EngineConfig), *fields(ServerConfig)):
        if field.name != "model":
            assert field.flag.split("/")[0] in help_text
        assert field.description in help_text
    assert "[default: 64]" in help_text
    assert "--prefix-cache --no-prefix-cache" in help_text or "--prefix-cache/--no-prefix-cache" in help_text


def test_the_page_in_docs_is_the_generated_one() -> None:
    assert DOCS.read_text(encoding="utf-8") == options_page(), "run `make docs`"


def test_the_page_has_every_option_once() -> None:
    rows = [line for line in options_page().splitlines() if line.startswith("| `")]
    assert len(rows) == len(fields(EngineConfig)) + len(fields(ServerConfig))
