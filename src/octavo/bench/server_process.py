"""A server of our own under test: `octavo serve` as a child process on a free port, and how much memory and CPU it and
its children take. Ends with the `with` block, by process id.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import psutil

from octavo.bench.termination import sigterm_as_ctrl_c
from octavo.errors import BenchError

START_S = 600.0  # a large model is being read from disk
STOP_S = 10.0
SAMPLE_S = 0.1
ADDRESS = re.compile(r"https?://[^\s/]+:\d+")
ERROR_LINES = 15


class ServerProcess:
    """`with ServerProcess(arguments) as server`: `server.base_url` answers from then on.

    `arguments` follow `octavo serve`. BenchError, with the server's last words, when it does not come up.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._command = [sys.executable, "-m", "octavo", "serve", *arguments, "--port", "0"]
        self.base_url = ""
        self._peak_rss_bytes = 0
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self._termination = sigterm_as_ctrl_c()
        self._termination.__enter__()
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=self._errors, text=True)
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()
        try:
            self.base_url = self._wait_for_address()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def _wait_for_address(self) -> str:
        """The address that the server prints once it answers."""
        overdue = threading.Timer(START_S, self._process.kill)
        overdue.start()
        try:
            assert self._process.stdout is not None
            for line in self._process.stdout:
                if match := ADDRESS.search(line):
                    threading.Thread(target=self._process.stdout.read, daemon=True).start()  # keeps its pipe empty
                    return match[0]
        finally:
            overdue.cancel()
        self._process.wait()
        self._errors.seek(0)
        said = "".join(self._errors.readlines()[-ERROR_LINES:]).strip()
        raise BenchError(
            f"the server did not start (exit code {self._process.returncode}): {said or 'it said nothing'}"
        )

    def peak_rss_bytes(self) -> int:
        """The largest resident size of the process tree so far, loading included. Pages that two processes share (the
        interpreter's own, some 15 MiB) count twice: an upper bound, and cheap enough to look at ten times a second."""
        self._look()
        return self._peak_rss_bytes

    def cpu_seconds(self) -> float:
        """CPU time that the process tree has used so far, user and system."""
        return sum(sum(process.cpu_times()[:2]) for process in self._tree())

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self._look()

    def _look(self) -> None:
        self._peak_rss_bytes = max(self._peak_rss_bytes, sum(_rss(process) for process in self._tree()))

    def _tree(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _end(self) -> None:
        self._over.set()
        self._sampler.join()
        self._stop()

    def _stop(self) -> None:
        self._termination.__exit__(None, None, None)
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


def _rss(process: psutil.Process) -> int:
    try:
        size: int = process.memory_info().rss
    except psutil.NoSuchProcess:
        return 0
    return size
