"""How many cores this process may use. Reads only; how many of them compute is the backend's decision."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Cores that the scheduler lets this process run on (taskset, cpusets), not those that the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # not Linux
