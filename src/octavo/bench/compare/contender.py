"""The parent's end of a contender: a child process that answers one JSON job at a time on its standard streams. Owns
starting, waiting, giving up and ending; what a job means is the adapter's.
"""

from __future__ import annotations

import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import psutil

from octavo.errors import BenchError

LONGEST_LINE = 1 << 20
STOP_S = 10.0
QUIET_S = 0.2  # how long processor time is watched to see whether a contender is idle
QUIET_SHARE = 0.03  # of one core; more than that is a spinning thread
SETTLE_S = 3.0
LAST_WORDS = 300


class Measurement(msgspec.Struct, frozen=True):
    """What a contender answers to a job. `figures` are token counts and seconds, see `workloads.Metric`."""

    id: int
    figures: dict[str, float] = {}
    settings: dict[str, Any] = {}
    versions: dict[str, str] = {}
    error: str | None = None


class JobFailed(BenchError):
    """The contender works, and this job is not for it."""


class ContenderFailed(BenchError):
    """The contender could not be started, died or broke the protocol; its process is gone."""


class ContenderHung(ContenderFailed):
    """The contender gave no answer in time, and was ended."""


class Contender:
    """`with Contender(name, command) as contender`: the process runs from the first job on."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._jobs = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def run(self, job: Mapping[str, Any], timeout_s: float) -> Measurement:
        """The answer to a job. JobFailed when it says no, ContenderFailed when there is none,
        ContenderHung when there is none after `timeout_s` seconds."""
        process = self._process or self._start()
        self._jobs += 1
        assert process.stdin is not None
        try:
            process.stdin.write(msgspec.json.encode({**job, "id": self._jobs}) + b"\n")
            process.stdin.flush()
            line = self._lines.get(timeout=timeout_s)
        except OSError:
            line = b""
        except queue.Empty:
            self.stop(at_once=True)
            raise ContenderHung(f"no answer within {timeout_s:g} s") from None
        except BaseException:
            self.stop(at_once=True)
            raise
        return self._read(line)

    def _read(self, line: bytes) -> Measurement:
        assert self._process is not None
        if not line:
            code = self._wait()
            words = self._last_words()
            self.stop(at_once=True)
            raise ContenderFailed(f"ended with exit code {code}: {words or 'it said nothing'}")
        try:
            measurement = msgspec.json.decode(line, type=Measurement)
        except msgspec.DecodeError:
            measurement = None
        if measurement is None or measurement.id != self._jobs:
            self.stop(at_once=True)
            raise ContenderFailed(
                f"printed something that is no result: {line[:80].decode(errors='replace').strip()!r}"
            )
        if measurement.error is not None:
            raise JobFailed(measurement.error)
        return measurement

    def settle(self) -> bool:
        """Wait until the process uses no processor time, so that the next contender has the machine to itself. One
        that goes on spinning is ended, and starts anew with its next job: False."""
        if self._process is None:
            return True
        deadline = time.monotonic() + SETTLE_S
        while True:
            before = _cpu_s(self._process.pid)
            time.sleep(QUIET_S)
            if _cpu_s(self._process.pid) - before <= QUIET_SHARE * QUIET_S:
                return True
            if time.monotonic() > deadline:
                self.stop(at_once=True)
                return False

    def stop(self, *, at_once: bool = False) -> None:
        """End the process and its children; gently by the end of its input, unless `at_once`."""
        process, self._process = self._process, None
        if process is None:
            return
        family = _family(process.pid)
        assert process.stdin is not None
        try:
            process.stdin.close()
            process.wait(0.0 if at_once else STOP_S)
        except (OSError, subprocess.TimeoutExpired):
            pass
        for member in family:
            try:
                member.kill()
            except psutil.NoSuchProcess:
                continue
        process.wait()
        self._errors.close()

    def _start(self) -> subprocess.Popen[bytes]:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                cwd=Path(tempfile.gettempdir()),  # a directory whose files cannot shadow the contender's modules
                start_new_session=True,  # Ctrl-C is ours to pass on
            )
        except OSError as error:
            self._errors.close()
            raise ContenderFailed(f"could not be started: {error}") from error
        self._process = process
        lines: queue.Queue[bytes] = queue.Queue()
        self._lines = lines
        threading.Thread(target=_read_lines, args=(process, lines), daemon=True).start()
        return process

    def _wait(self) -> int | str:
        assert self._process is not None
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            return "none (it closed its output and stayed)"

    def _last_words(self) -> str:
        size = self._errors.seek(0, 2)
        self._errors.seek(max(0, size - LAST_WORDS))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


def _read_lines(process: subprocess.Popen[bytes], lines: queue.Queue[bytes]) -> None:
    """Pass on every line, and an empty one for the end."""
    assert process.stdout is not None
    with process.stdout as stream:
        while line := stream.readline(LONGEST_LINE):
            lines.put(line)
    lines.put(b"")


def _family(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _cpu_s(pid: int) -> float:
    total = 0.0
    for member in _family(pid):
        try:
            times = member.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total
