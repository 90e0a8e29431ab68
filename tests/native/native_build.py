"""Building the native library in other ways than an installation does: instrumented, warnings as errors, for another
machine. Everything that is built lies in the directory that the caller names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The test environment brings cmake and ninja, for machines that have none.
TOOLS = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])


def compiler(*names: str) -> str | None:
    """The first of the named compilers that is here; without names, the one of an installation."""
    found = (shutil.which(name) for name in names or (os.environ.get("CXX", "c++"), "c++", "g++", "clang++"))
    return next((path for path in found if path), None)


def build(directory: Path, *options: str) -> Path:
    """Configure and build with CMake options, as far as not done already; where the library lies.

    AssertionError with the build's output when it fails.
    """
    environment = os.environ | {"PATH": TOOLS}
    configure = ["cmake", "-S", str(ROOT / "native"), "-B", str(directory), "-G", "Ninja", *options]
    for command in (configure, ["cmake", "--build", str(directory), "--parallel", "2"]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    return directory / "liboctavo.so"
