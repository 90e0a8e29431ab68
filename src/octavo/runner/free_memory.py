"""How much memory this process may still take: the machine's, or what its control group leaves of it (containers,
systemd services). Reads only; what to do with the number is resolve()'s.

The files are described in the Linux kernel's documentation: cgroup-v2.rst and cgroup-v1/memory.rst.
"""

from __future__ import annotations

from pathlib import Path

import psutil


def free_memory(root: Path = Path("/")) -> int:
    """Bytes that can be allocated without swapping. `root` is where /proc and /sys are looked for."""
    free = int(psutil.virtual_memory().available)
    for group, version in _memory_groups(root):
        remainder = _remainder_v2(group) if version == 2 else _remainder_v1(group)
        if remainder is not None:
            free = min(free, remainder)
    return max(0, free)


def _memory_groups(root: Path) -> list[tuple[Path, int]]:
    """The directories of this process's memory control group and of the groups around it, each with its version.

    Inside a container the path named by /proc may not exist below the mount; what bounds it is the mount itself.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return []
    groups: list[tuple[Path, int]] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, version = root / "sys/fs/cgroup", 2
        elif "memory" in controllers.split(","):
            mount, version = root / "sys/fs/cgroup/memory", 1
        else:
            continue
        group = mount / path.lstrip("/")
        while group != mount and mount in group.parents:
            groups.append((group, version))
            group = group.parent
        groups.append((mount, version))
    return groups


def _remainder_v2(group: Path) -> int | None:
    return _remainder(group / "memory.max", group / "memory.current", group / "memory.stat", "inactive_file")


def _remainder_v1(group: Path) -> int | None:
    return _remainder(
        group / "memory.limit_in_bytes", group / "memory.usage_in_bytes", group / "memory.stat", "total_inactive_file"
    )


def _remainder(limit: Path, usage: Path, stat: Path, reclaimable: str) -> int | None:
    """Limit less usage, where file pages that the kernel would drop at once count as free. None without a limit."""
    try:
        allowed, used = limit.read_text().strip(), int(usage.read_text())
        if not allowed.isdigit():  # "max"
            return None
        for line in stat.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == reclaimable:
                used -= int(value)
    except (OSError, ValueError):
        return None
    return int(allowed) - max(0, used)
