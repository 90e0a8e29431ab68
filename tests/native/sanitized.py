"""Tests of the native library under sanitizers: the library is built again with the compiler's instrumentation, and the
sanitizer's runtime is preloaded into Python, which has none. `python tests/native/sanitized.py [pytest's arguments]`
runs every sanitizer over all native tests; test_sanitizers.py takes a few of them into the default run.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from native_build import ROOT, build, compiler


@dataclass(frozen=True)
class Sanitizer:
    """What the compiler is told, the runtimes to preload, and their options."""

    flags: str
    runtimes: tuple[str, ...]
    options: dict[str, str]


SANITIZERS = {
    "address": Sanitizer(
        "address,undefined",
        ("libasan.so", "libubsan.so"),
        # What Python leaves allocated at its end is not ours.
        {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"},
    ),
    "thread": Sanitizer("thread", ("libtsan.so",), {"TSAN_OPTIONS": "halt_on_error=1:exitcode=66"}),
}

# All but those that start compilers, into which the runtime would be preloaded too.
NATIVE_TESTS = ["tests/native", *(f"--ignore=tests/native/test_{name}.py" for name in ("sanitizers", "native_build"))]


def missing(name: str) -> str | None:
    """Why this sanitizer cannot run here; None when it can."""
    if sys.platform != "linux":
        return "runtimes are preloaded in the way of Linux"
    if compiler("g++") is None:
        return "needs g++ with its sanitizers"
    absent = [runtime for runtime in SANITIZERS[name].runtimes if not _runtime(runtime).is_absolute()]
    return f"g++ comes without {', '.join(absent)}" if absent else None


def run_sanitized(name: str, arguments: list[str], timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    """pytest with `arguments` in a new process, against an instrumented library. TimeoutExpired past the limit."""
    sanitizer = SANITIZERS[name]
    library = build(
        ROOT / "build" / "sanitize" / name,
        f"-DOCTAVO_SANITIZE={sanitizer.flags}",
        "-DCMAKE_CXX_COMPILER=g++",
    )
    environment = os.environ | sanitizer.options
    environment["LD_PRELOAD"] = " ".join(str(_runtime(runtime)) for runtime in sanitizer.runtimes)
    environment["OPENBLAS_NUM_THREADS"] = "1"
    # The thread sanitizer's shadow memory has no room for the kernel's widest address randomisation.
    fixed = ["setarch", platform.machine(), "-R"] if name == "thread" and shutil.which("setarch") else []
    command = [
        *fixed,
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--capture=sys",  # a report on the file descriptor must not end in a file of pytest's
        f"--native-library={library}",
        *arguments,
    ]
    return subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False
    )


def _runtime(name: str) -> Path:
    """Absolute where g++ has it."""
    found = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return Path(found.stdout.strip())


def main(arguments: list[str]) -> int:
    failed = 0
    for name in SANITIZERS:
        if reason := missing(name):
            print(f"{name}: skipped: {reason}")
            continue
        done = run_sanitized(name, arguments or NATIVE_TESTS)
        print(f"{name}: {'ok' if done.returncode == 0 else 'FAILED'}\n{(done.stdout + done.stderr)[-6000:]}")
        failed += done.returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
