"""`octavo serve`: the server, and what the user should see of it: loading bars, the plan with its reasons, the address
with a line to try. Serving itself is `server/run.py`.
"""

from __future__ import annotations

import json
import shlex
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

from rich.markup import escape

from octavo.cli.console import diagnostics, output, plain_table, print_table
from octavo.cli.front_end import ENGINE_FACTORY, front_end
from octavo.cli.options import configured
from octavo.config import EngineConfig, ServerConfig
from octavo.progress import LoadBar

if TYPE_CHECKING:
    from octavo.config import Resolved

QUESTION = "Why is the sky blue?"
TEMPERATURE = 0.2  # at the API's default of 1, small models ramble
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # an address to listen on, and one to call


@configured(model="argument")
def serve(engine: EngineConfig, server: ServerConfig) -> None:
    """Serve a model over HTTP to any OpenAI client."""
    from octavo.server.listen import listen
    from octavo.service.early import EarlyEngine

    # In this order: the engine imports while we read the model's text, and loads while we import what we serve with.
    with listen(server.host, server.port) as listener, EarlyEngine(ENGINE_FACTORY) as early, ExitStack() as loading:
        bar = loading.enter_context(LoadBar())
        deps = front_end(engine, server, bar.update, early)

        from octavo.server.run import run_server

        def announce(resolved: Resolved) -> None:
            loading.close()
            _print_plan(deps.model, resolved)
            _print_address(deps.model, _address(listener))

        run_server(deps, listener, drain_s=server.drain, on_ready=announce, on_drain=_say_draining)


def _print_plan(model: str, resolved: Resolved) -> None:
    table = plain_table("", "", "")
    for decision in resolved.decisions:
        table.add_row(f"[bold]{decision.name}[/]", escape(decision.value), f"[dim]{escape(decision.reason)}[/]")
    print_table(f"Octavo serves {model}", table)


def _print_address(model: str, address: str) -> None:
    body: dict[str, object] = {"model": model, "stream": True, "temperature": TEMPERATURE}
    body["messages"] = [{"role": "user", "content": QUESTION}]
    call = f"curl {address}/v1/chat/completions -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"
    console = output()
    console.print(f"\nListening on [bold]{address}[/]; Ctrl-C stops. Try:\n", soft_wrap=True)
    console.print(call, markup=False, soft_wrap=True)


def _address(listener: socket.socket) -> str:
    """Where this machine reaches the socket."""
    host, port = listener.getsockname()[:2]
    host = EVERYWHERE.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _say_draining(unfinished: int) -> None:
    if unfinished:
        answers = "1 answer" if unfinished == 1 else f"{unfinished} answers"
        diagnostics().print(f"finishing {answers}; Ctrl-C again stops at once")
