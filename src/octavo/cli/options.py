"""Command-line options made from the configuration structs, so that each option has one definition (config.py).

Owns how a field looks as a flag and as a row of docs/configuration.md. Knows no command; what an option means is
config.py's. `python -m octavo.cli.options FILE` writes the page.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
import typer

from octavo.config import EngineConfig, ServerConfig
from octavo.errors import ConfigError

Struct = type[msgspec.Struct]

# Short forms, by flag. Everything else has its long form only.
SHORT_FORMS = {"--model": "-m", "--port": "-p"}


class Field(msgspec.Struct, frozen=True):
    """One option: the struct's field seen as a flag. `type` is what typer parses (bool: a pair of flags)."""

    name: str
    type: Any
    default: Any
    description: str

    @property
    def flag(self) -> str:
        """ "kv_memory" -> "--kv-memory"; a bool gets its opposite too."""
        kebab = self.name.replace("_", "-")
        return f"--{kebab}/--no-{kebab}" if self.type is bool else f"--{kebab}"

    @property
    def shown_default(self) -> str:
        if self.type is bool:
            return "on" if self.default else "off"
        return "" if self.default is None else str(self.default)


def fields(config: Struct) -> list[Field]:
    """The options of a configuration struct, in the order of its definition."""
    hints = get_type_hints(config, include_extras=True)
    found = []
    for field in msgspec.structs.fields(config):
        kind, *notes = get_args(hints[field.name])
        description = next(note.description for note in notes if isinstance(note, msgspec.Meta))
        found.append(Field(field.name, kind, field.default, description))
    return found


def configured(*, model: Literal["argument", "option"]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command: every parameter annotated with a configuration struct becomes one flag per field.

    `model` says whether the engine's model is given as `[MODEL]` or as `--model`. A value that the struct
    refuses is a usage error (exit code 2).
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        structs = {name: hint for name, hint in hints.items() if _is_config(hint)}
        own, added = [], []
        for parameter in inspect.signature(command).parameters.values():
            if parameter.name in structs:
                added += [_parameter(field, model) for field in fields(structs[parameter.name])]
            else:
                own.append(parameter.replace(annotation=hints[parameter.name]))

        @functools.wraps(command)
        def run(**values: Any) -> None:
            built = {name: _build(struct, values) for name, struct in structs.items()}
            command(**values, **built)

        # Arguments of the command itself come first on its line; keyword-only keeps the order free of defaults.
        ordered = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *added)]
        vars(run)["__signature__"] = inspect.Signature(ordered)
        run.__annotations__ = {p.name: p.annotation for p in ordered}
        return run

    return decorate


def arguments_of(config: msgspec.Struct) -> list[str]:
    """The command line that gives this configuration: the model first, then every flag that is not at its default."""
    words = []
    for field in fields(type(config)):
        value = getattr(config, field.name)
        if field.name == "model":
            words.insert(0, value)
        elif value != field.default:
            yes, _, no = field.flag.partition("/")
            words += [yes if value else no] if field.type is bool else [yes, str(value)]
    return words


def options_page() -> str:
    """docs/configuration.md: every option of engine and server with its default."""
    parts = [
        "# Configuration\n\n"
        "Options of the commands that compute. Those of the engine belong to `octavo serve`, `chat`, `run`,\n"
        '`bench decode` and `bench serve`, and are keyword arguments in Python: `LLM("smollm2", max_len=2048)`.\n'
        "Those of the server belong to `octavo serve`. What only one command knows is in its `--help`.\n\n"
        "The model is the first argument, as in `octavo serve smollm2`; only `run` takes it as `--model`.\n\n"
        "Options are defined once, in `src/octavo/config.py`; `make docs` writes this page from there.\n"
    ]
    for title, config in (("Engine", EngineConfig), ("Server", ServerConfig)):
        rows = ["| Option | Default | Meaning |", "|---|---|---|"]
        for field in fields(config):
            flag = " ".join(f"`{part}`" for part in field.flag.split("/"))
            default = f"`{field.shown_default}`" if field.shown_default else ""
            rows.append(f"| {flag} | {default} | {field.description} |")
        parts.append(f"## {title}\n\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _is_config(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _build(struct: Struct, values: dict[str, Any]) -> msgspec.Struct:
    try:
        return struct(**{field.name: values.pop(field.name) for field in fields(struct)})
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


def _parameter(field: Field, model: str) -> inspect.Parameter:
    shown = field.default is not None
    if field.name == "model" and model == "argument":
        info: Any = typer.Argument(help=field.description, show_default=shown, metavar="MODEL")
    else:
        forms = [field.flag]
        if field.flag in SHORT_FORMS:
            forms.append(SHORT_FORMS[field.flag])
        info = typer.Option(*forms, help=field.description, show_default=shown)
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=Annotated[field.type, info]
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(options_page(), encoding="utf-8")
