"""Which peers are on this machine and how each is started. A peer is an interpreter that has its package, or for
llama-server the program itself. Nothing is imported here: candidates are asked in processes of their own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from octavo.bench.compare.workloads import LLAMA_CPP, LLAMA_SERVER, OPENVINO, OWN, PEERS, TRANSFORMERS
from octavo.errors import BenchError

ADAPTERS = Path(__file__).parent / "peers"
ASK_S = 60.0
PACKAGES = {  # what an interpreter must be able to import, and the script that it then runs
    LLAMA_CPP: (("llama_cpp", "numpy"), "llama_cpp_adapter.py"),
    OPENVINO: (("openvino_genai", "numpy"), "openvino_adapter.py"),
    TRANSFORMERS: (("transformers", "torch", "gguf", "accelerate"), "transformers_adapter.py"),
}
_ASK = "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))"


@dataclass(frozen=True, slots=True)
class Peer:
    """How a contender is started, or why it cannot be: exactly one of `command` and `missing`."""

    name: str
    command: tuple[str, ...] = ()
    missing: str | None = None


def own_contender() -> Peer:
    return Peer(OWN, (sys.executable, "-m", "octavo.bench.compare.own"))


def find_peers(named: Iterable[str], directories: Iterable[Path], wanted: Iterable[str] | None = None) -> list[Peer]:
    """Look for the `wanted` peers, or for all.

    `named` are NAME=PATH with an interpreter, a virtual environment or a program, which hold for that peer;
    `directories` hold virtual environments to be tried. BenchError for a name that is no peer's or a path that is
    not there.
    """
    names = PEERS if wanted is None else tuple(dict.fromkeys(wanted))
    for name in names:
        if name not in PEERS:
            raise BenchError(f"there is no peer {name!r}; peers are {', '.join(PEERS)}")
    paths = dict(_named(entry) for entry in named)
    candidates = _candidates(directories)
    return [_find(name, paths, candidates) for name in names]


def _find(name: str, paths: Mapping[str, Path], candidates: list[Path]) -> Peer:
    if name == LLAMA_SERVER:
        program = paths.get(name) or shutil.which("llama-server")
        if program is None:
            return Peer(name, missing="not found: no llama-server on PATH; --peer llama-server=PROGRAM names one")
        return Peer(name, (sys.executable, "-m", "octavo.bench.compare.llama_server", str(program)))
    packages, script = PACKAGES[name]
    asked = [_interpreter(paths[name])] if name in paths else candidates
    for interpreter in asked:
        if _has(interpreter, packages):
            return Peer(name, (str(interpreter), str(ADAPTERS / script)))
    what = " and ".join(packages)
    if name in paths:
        return Peer(name, missing=f"{paths[name]} cannot import {what}")
    return Peer(name, missing=f"not found: no interpreter here has {what}; --peer {name}=PYTHON names one")


def _named(entry: str) -> tuple[str, Path]:
    name, _, path = entry.partition("=")
    if name not in PEERS or not path:
        raise BenchError(f"--peer takes NAME=PATH with a name of {', '.join(PEERS)}; got {entry!r}")
    if not Path(path).exists():
        raise BenchError(f"--peer {name}: there is no {path}")
    return name, Path(path)


def _candidates(directories: Iterable[Path]) -> list[Path]:
    """Our own interpreter, those in the environments, and the one on PATH; each once."""
    found = [Path(sys.executable)]
    for directory in directories:
        if not directory.is_dir():
            raise BenchError(f"--peers-in: {directory} is no directory")
        found += sorted(path for path in directory.glob("*/bin/python"))
    if python := shutil.which("python3"):
        found.append(Path(python))
    return list(dict.fromkeys(found))


def _interpreter(path: Path) -> Path:
    """A path that is a virtual environment stands for its interpreter. Links are kept: they are what makes one."""
    return path.absolute() / "bin" / "python" if path.is_dir() else path.absolute()


def _has(interpreter: Path, packages: tuple[str, ...]) -> bool:
    try:
        asked = subprocess.run(
            [interpreter, "-c", _ASK, *packages],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0
