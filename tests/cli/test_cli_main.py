"""The command as a whole: quick help that is complete, versions, and failures without tracebacks."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import octavo as package
from octavo.cli.main import app

HELP_CPU_S = 0.4
HEAVY = ("numpy", "tokenizers", "starlette", "uvicorn", "asyncio", "jinja2", "prometheus_client", "psutil", "torch")


def commands() -> Iterator[tuple[list[str], Any]]:
    """Every command that can be run, with the words that name it."""
    root = typer.main.get_command(app)
    for name, command in root.commands.items():
        if hasattr(command, "commands"):
            yield from (([name, inner], found) for inner, found in command.commands.items())
        else:
            yield [name], command


COMMANDS = list(commands())


def test_the_commands_are_those_of_the_readme() -> None:
    names = {" ".join(words) for words, _ in COMMANDS}
    assert names == {
        *("serve", "chat", "run", "pull", "list", "rm", "doctor"),
        *("bench step", "bench decode", "bench perplexity", "bench start", "bench serve", "bench compare"),
    }


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=[" ".join(words) for words, _ in COMMANDS])
def test_help_of_each_command_mentions_every_option(words: list[str], command: Any) -> None:
    result = CliRunner().invoke(app, [*words, "--help"])
    assert result.exit_code == 0
    text = " ".join(result.output.split())
    for parameter in command.params:
        if parameter.param_type_name == "option":
            assert all(form in text for form in (*parameter.opts, *parameter.secondary_opts)), parameter.name
            assert parameter.help, parameter.name
    assert command.help.splitlines()[0] in text


def test_help_imports_nothing_heavy() -> None:
    code = f"import octavo.cli.main, sys; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == ""


def test_help_is_quick() -> None:
    assert min(cpu_seconds_of_help() for _ in range(3)) < HELP_CPU_S


def cpu_seconds_of_help() -> float:
    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = spent()
    subprocess.run([sys.executable, "-m", "octavo", "--help"], stdout=subprocess.DEVNULL, check=True)
    return spent() - before


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"octavo {package.__version__}\n"


@pytest.mark.parametrize("arguments", [["dance"], ["serve", "--dance"], ["bench", "dance"], ["serve", "--chunk", "0"]])
def test_a_wrong_command_line_is_exit_code_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_a_typed_error_is_one_line_and_exit_code_1() -> None:
    result = CliRunner().invoke(app, ["chat", "no-such-model", "--offline"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: 'no-such-model'")
    assert result.stderr.count("\n") == 1


def test_an_error_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.checkpoint.store.Store.list", lambda _: 1 / 0)
    assert isinstance(CliRunner().invoke(app, ["list"]).exception, ZeroDivisionError)


def test_ctrl_c_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("octavo.checkpoint.store.Store.list", interrupt)
    result = CliRunner().invoke(app, ["list"])
    assert result.exit_code == 130
    assert result.output == ""


def test_a_full_disk_is_one_line_and_exit_code_1() -> None:
    command = [sys.executable, "-m", "octavo", "list"]
    with open("/dev/full", "w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert result.stderr.startswith("error: [Errno 28]")
    assert result.stderr.count("\n") == 1


def test_what_a_terminal_cannot_show_is_replaced() -> None:
    program = "import octavo.cli.main as m; m.app = lambda prog_name: print('naïve ☃'); m.main()"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, timeout=60, check=True
    )
    assert result.stdout == b"na?ve ?\n"
