"""Finding peers: interpreters that have a package, programs on PATH, and clear words for what is not there."""

import sys
from pathlib import Path

import pytest

from octavo.bench.compare import find
from octavo.bench.compare.find import find_peers
from octavo.bench.compare.workloads import LLAMA_CPP, LLAMA_SERVER, OPENVINO, PEERS
from octavo.errors import BenchError


def pretend_environment(directory: Path, *packages: str) -> Path:
    """A virtual environment, as far as finding packages goes: this interpreter with `packages` beside it."""
    (directory / "bin").mkdir(parents=True)
    for package in packages:
        (directory / "lib" / package).mkdir(parents=True)
        (directory / "lib" / package / "__init__.py").write_text("raise RuntimeError('must not be imported')\n")
    python = directory / "bin" / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={directory}/lib exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python


def test_every_adapter_is_there() -> None:
    for _, script in find.PACKAGES.values():
        assert (find.ADAPTERS / script).is_file()


def test_peers_are_found_in_a_directory_of_environments(tmp_path: Path) -> None:
    pretend_environment(tmp_path / "a-other", "numpy")
    python = pretend_environment(tmp_path / "b-llama", "llama_cpp", "numpy")
    llama_cpp, openvino = find_peers([], [tmp_path], [LLAMA_CPP, OPENVINO])
    assert llama_cpp.command == (str(python), str(find.ADAPTERS / "llama_cpp_adapter.py"))
    assert openvino.command == ()
    assert openvino.missing == (
        "not found: no interpreter here has openvino_genai and numpy; --peer openvino=PYTHON names one"
    )


def test_a_named_interpreter_or_environment_is_the_only_one_asked(tmp_path: Path) -> None:
    python = pretend_environment(tmp_path / "good", "llama_cpp", "numpy")
    pretend_environment(tmp_path / "bad", "numpy")
    for path in (python, tmp_path / "good"):
        (found,) = find_peers([f"llama.cpp={path}"], [], [LLAMA_CPP])
        assert found.command[0] == str(python)
    (absent,) = find_peers([f"llama.cpp={tmp_path / 'bad'}"], [tmp_path], [LLAMA_CPP])
    assert absent.missing == f"{tmp_path / 'bad'} cannot import llama_cpp and numpy"


def test_llama_server_is_a_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.touch(0o755)
    (named,) = find_peers([f"llama-server={program}"], [], [LLAMA_SERVER])
    assert named.command == (sys.executable, "-m", "octavo.bench.compare.llama_server", str(program))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_peers([], [], [LLAMA_SERVER]) == [named]
    monkeypatch.setenv("PATH", "")
    (absent,) = find_peers([], [], [LLAMA_SERVER])
    assert absent.missing is not None
    assert "no llama-server on PATH" in absent.missing


def test_wrong_names_and_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"NAME=PATH with a name of llama.cpp, .*; got 'vllm=/x'"):
        find_peers(["vllm=/x"], [])
    with pytest.raises(BenchError, match="NAME=PATH"):
        find_peers(["llama.cpp"], [])
    with pytest.raises(BenchError, match="there is no /nowhere"):
        find_peers(["llama.cpp=/nowhere"], [])
    with pytest.raises(BenchError, match="is no directory"):
        find_peers([], [tmp_path / "nothing"])
    with pytest.raises(BenchError, match=f"no peer 'vllm'; peers are {', '.join(PEERS)}"):
        find_peers([], [], ["vllm"])
