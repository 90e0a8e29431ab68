"""`octavo pull`, `list` and `rm`: the models on this machine. What a name means and where files lie is the store's
(`checkpoint/store.py`).
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.console import output, plain_table
from octavo.config import DEFAULT_MODEL, format_bytes
from octavo.errors import StoreError
from octavo.progress import LoadBar

if TYPE_CHECKING:
    from octavo.checkpoint.store import Store


def pull(
    model: Annotated[
        str,
        typer.Argument(help="A name from `octavo list`, or a hub id: org/name or org/name:file.gguf.", metavar="MODEL"),
    ] = DEFAULT_MODEL,
) -> None:
    """Fetch a model into the store."""
    with LoadBar() as bar:
        path = _store().pull(model, bar.update)
    output().print(f"{model} is at {path}", soft_wrap=True)


def list_models() -> None:
    """List the models in the store, and those that `octavo pull` knows by name."""
    from octavo.checkpoint.catalog import CATALOG

    stored = _store().list()
    table = plain_table("model", "size", "licence", "from")
    for model in stored:
        table.add_row(model.name, format_bytes(model.bytes), model.license, model.source)
    names = {model.name for model in stored}
    for known in CATALOG.values():
        if known.name not in names:
            table.add_row(
                known.name, format_bytes(known.file_bytes), known.license, f"not here: octavo pull {known.name}"
            )
    output().print(table)


def rm(
    models: Annotated[list[str], typer.Argument(help="Names from `octavo list`.", metavar="MODEL")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete models from the store."""
    store = _store()
    sizes = {model.name: model.bytes for model in store.list()}
    for name in models:
        if name not in sizes:
            raise StoreError(_absent(name, list(sizes)))
    for name in dict.fromkeys(models):
        size = format_bytes(sizes[name])
        if not yes and not typer.confirm(f"Delete {name} ({size})?"):
            raise typer.Exit(1)
        store.remove(name)
        output().print(f"deleted {name}, {size} freed", soft_wrap=True)


def _store() -> Store:
    from octavo.checkpoint.store import Store, default_store_dir

    return Store(default_store_dir())


def _absent(name: str, present: list[str]) -> str:
    if not present:
        return f"no model '{name}': the store is empty"
    near = get_close_matches(name, present, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"it holds {', '.join(present)}"
    return f"no model '{name}' in the store: {hint}"
