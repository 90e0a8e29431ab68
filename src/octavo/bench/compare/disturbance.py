"""How much of the machine other programs used while a contender ran: what is measured then must be known as such."""

from __future__ import annotations

import os
import time

import psutil

CALM = 0.05  # below this share of all processor time nothing is said


class Disturbance:
    """Watches from its construction on. `pid` is the contender's process, which may start or end meanwhile."""

    def __init__(self, pid: int | None) -> None:
        self._ours = _family_s(pid) + _family_s(os.getpid(), children=False)
        self._all = _busy_s()
        self._since = time.monotonic()

    def share(self, pid: int | None) -> float:
        """The share of all processor time since then that went to anybody else, stolen time of a virtual machine
        included; between 0 and 1."""
        ours = _family_s(pid) + _family_s(os.getpid(), children=False) - self._ours
        available = (time.monotonic() - self._since) * (psutil.cpu_count() or 1)
        return min(1.0, max(0.0, (_busy_s() - self._all - ours) / available))


def _busy_s() -> float:
    times = psutil.cpu_times()._asdict()
    waiting = ("idle", "iowait", "guest", "guest_nice")  # guests' time is in user and nice already
    return float(sum(seconds for name, seconds in times.items() if name not in waiting))


def _family_s(pid: int | None, *, children: bool = True) -> float:
    """Processor time of a process, and of its children, living and ended."""
    if pid is None:
        return 0.0
    total = 0.0
    try:
        root = psutil.Process(pid)
        for member in [root, *root.children(recursive=True)] if children else [root]:
            times = member.cpu_times()
            total += times.user + times.system
            if children:
                total += times.children_user + times.children_system
    except psutil.NoSuchProcess:
        pass
    return total
