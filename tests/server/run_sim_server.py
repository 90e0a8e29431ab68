"""A program for tests: run_server with a simulated engine, telling on standard output what happens. Arguments are
fields of SimSpec as name=value, and --drain SECONDS.
"""

from __future__ import annotations

import argparse

import msgspec
from sim_server import ASCII_VOCAB, FACTORY, MODEL, tiny_text

from octavo.errors import OctavoError
from octavo.server.deps import Deps
from octavo.server.listen import listen
from octavo.server.run import run_server
from octavo.service.client import EngineClient
from octavo.sim.build import SimSpec


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("spec", nargs="*")
    parser.add_argument("--drain", type=float, default=10.0)
    arguments = parser.parse_args()
    given = dict(field.split("=", 1) for field in arguments.spec)
    spec = msgspec.convert({"vocab": ASCII_VOCAB, "eos_ids": (), **given}, SimSpec, strict=False)
    deps = Deps(
        client=EngineClient(FACTORY, msgspec.to_builtins(spec)),
        text=tiny_text(),
        model=MODEL,
        root="test-root",
        max_body=1 << 20,
    )
    listener = listen("127.0.0.1", 0)
    print(listener.getsockname()[1], flush=True)
    try:
        run_server(
            deps,
            listener,
            drain_s=arguments.drain,
            on_ready=lambda _: print("ready", flush=True),
            on_drain=lambda unfinished: print("draining", unfinished, flush=True),
        )
    except OctavoError as error:
        raise SystemExit(print(f"{type(error).__name__}: {error}", flush=True) or 1) from error
    print("stopped", flush=True)


if __name__ == "__main__":
    main()
