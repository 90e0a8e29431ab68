"""Assembles the `octavo` command and decides how failures end: a typed error is one red line and exit code 1, a
wrong command line exit code 2, Ctrl-C exit code 130 and no words. Each command lives in its own file.
"""

from __future__ import annotations

import io
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from octavo import __version__
from octavo.cli import bench, chat, doctor, models, run, serve
from octavo.cli.console import output, print_error
from octavo.errors import OctavoError


class QuietGroup(TyperGroup):
    """Ends a command without a traceback for everything that is not our own bug."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except OctavoError as error:
            print_error(str(error))
            raise typer.Exit(1) from None
        except BrokenPipeError:
            raise  # typer ends quietly when nobody reads on
        except OSError as error:  # a full disk, a file that cannot be written: the machine's fault, and it says which
            print_error(str(error))
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=QuietGroup,
    help="Serve open language models to many users at once from a paged KV cache.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("serve")(serve.serve)
app.command("chat")(chat.chat)
app.command("run")(run.run)
app.command("pull")(models.pull)
app.command("list")(models.list_models)
app.command("rm")(models.rm)
app.command("doctor")(doctor.doctor)
app.add_typer(bench.app, name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
        output().print(f"octavo {__version__}")
        raise typer.Exit


@app.callback()
def octavo(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Serve open language models to many users at once from a paged KV cache."""


def main() -> None:
    """Entry point of the `octavo` script. Answers hold any character; where a terminal's encoding lacks one, a "?"
    stands for it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app(prog_name="octavo")
