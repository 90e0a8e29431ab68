"""How the native library is built: warning-free on every ISA level, for other machines too, and part of this
installation wherever a compiler works.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from native_build import build, compiler

from octavo.ops.native.library import library_path

STRICT = "-DCMAKE_CXX_FLAGS=-Werror"


def test_the_library_is_here_where_a_compiler_is() -> None:
    if compiler() is None:
        pytest.skip("no C++ compiler: Octavo works without its native library")
    assert library_path().exists(), "the installation could not build it; `make native` shows why"


@pytest.mark.slow
def test_no_compiler_warning(tmp_path: Path) -> None:
    if compiler() is None:
        pytest.skip("no C++ compiler")
    assert build(tmp_path, STRICT).exists()


@pytest.mark.slow
def test_compiles_for_aarch64(tmp_path: Path) -> None:
    cross = compiler("aarch64-linux-gnu-g++")
    if cross is None:
        pytest.skip("no cross compiler (Debian: g++-aarch64-linux-gnu)")
    target = ("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", f"-DCMAKE_CXX_COMPILER={cross}")
    machine = build(tmp_path, STRICT, *target).read_bytes()[18:20]
    assert machine == b"\xb7\x00"  # EM_AARCH64 in the ELF header
