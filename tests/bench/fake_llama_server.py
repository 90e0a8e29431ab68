"""A program with llama-server's command line, as far as the comparison uses it, around the stub server."""

import argparse
import sys
import time
from pathlib import Path

from stub_server import Stub, running


def main() -> None:
    parser = argparse.ArgumentParser(prog="llama-server")
    parser.add_argument("--version", action="store_true")
    for name in ("-m", "-fa", "--host"):
        parser.add_argument(name)
    for name in ("-t", "-tb", "-np", "-c", "--port"):
        parser.add_argument(name, type=int)
    given = parser.parse_args()
    if given.version:
        print("version: 42 (fake)", file=sys.stderr)
        return
    if not Path(given.m).exists():
        sys.exit(1)
    with running(Stub(port=given.port, context_length=given.c // given.np)):
        time.sleep(600)


if __name__ == "__main__":
    main()
