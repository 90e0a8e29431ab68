"""`octavo run`: a file of requests in OpenAI's batch format. Results are written as they come, so an interrupted run
goes on where it stopped. The files are `batch_file.py`'s, the answers `batch_answers.py`'s.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.console import counted_progress, diagnostics
from octavo.cli.options import configured
from octavo.config import EngineConfig, ServerConfig

if TYPE_CHECKING:
    from octavo.cli.batch_file import BatchResult

MAX_BODY = "256MiB"  # a line of one's own file needs no protection from strangers


@configured(model="option")
def run(
    requests: Annotated[Path, typer.Argument(help="Requests, one JSON object a line.", metavar="IN.JSONL")],
    results: Annotated[Path, typer.Option("--output", "-o", help="Results, one line each; what is there is kept.")],
    engine: EngineConfig,
    served_name: Annotated[
        str | None, typer.Option(help="The model's name in the requests. Default: the name given as --model.")
    ] = None,
) -> None:
    """Answer a file of requests in OpenAI's batch format.

    A line of IN.JSONL, with an id of your own (more in docs/api.md):

    {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"model": "smollm2", "prompt": "Hello"}}

    An interrupted run goes on where it stopped when it is started again. Exit code 1 when a line failed.
    """
    import asyncio

    from octavo.cli.batch_answers import answer_all
    from octavo.cli.batch_file import ResultFile, count_lines, read_requests

    if results.exists() and requests.exists() and results.samefile(requests):
        raise typer.BadParameter("the results need a file of their own", param_hint="--output")
    total = count_lines(requests)
    with ResultFile(results) as file, counted_progress() as progress:
        lines = read_requests(requests, file.answered)
        first = next(lines, None)
        if first is None:
            found = f"all {total} lines of {requests} are answered in {results}" if total else f"{requests} is empty"
            diagnostics().print(f"nothing to do: {found}")
            return
        done = len(file.answered.custom_ids) + len(file.answered.refusals)
        bar = progress.add_task("answering", total=total, completed=done)
        written = failed = 0

        def write(result: BatchResult) -> None:
            nonlocal written, failed
            file.write(result)
            written += 1
            failed += result.failed
            progress.advance(bar)

        server = ServerConfig(served_name=served_name, max_body=MAX_BODY)
        asyncio.run(answer_all(engine, server, itertools.chain([first], lines), write))
    before = f"; {done} were done before" if done else ""
    diagnostics().print(f"{written - failed} lines answered, {failed} failed{before}. Results: {results}")
    if failed:
        raise typer.Exit(1)
