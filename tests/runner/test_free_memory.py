"""Free memory under control groups of both versions, on made-up /proc and /sys trees."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from octavo.runner.free_memory import free_memory

GIB = 2**30


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 8 GiB available."""
    memory = psutil.virtual_memory()._replace(available=8 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _group_v2(limit: str, used: int, inactive: int = 0, at: str = "sys/fs/cgroup") -> dict[str, str]:
    return {
        f"{at}/memory.max": f"{limit}\n",
        f"{at}/memory.current": f"{used}\n",
        f"{at}/memory.stat": f"anon 5\ninactive_file {inactive}\nactive_file 7\n",
    }


def test_without_control_groups(tmp_path: Path) -> None:
    assert free_memory(tmp_path) == 8 * GIB


def test_version_2_without_a_limit(tmp_path: Path) -> None:
    _write(tmp_path, {"proc/self/cgroup": "0::/\n"} | _group_v2("max", 3 * GIB))
    assert free_memory(tmp_path) == 8 * GIB


def test_version_2_file_pages_count_as_free(tmp_path: Path) -> None:
    _write(tmp_path, {"proc/self/cgroup": "0::/\n"} | _group_v2(str(4 * GIB), 3 * GIB, inactive=2 * GIB))
    assert free_memory(tmp_path) == 3 * GIB


def test_the_tightest_group_on_the_way_up_counts(tmp_path: Path) -> None:
    _write(tmp_path, {"proc/self/cgroup": "0::/user/service\n"} | _group_v2("max", 0))
    _write(tmp_path, _group_v2(str(2 * GIB), GIB, at="sys/fs/cgroup/user"))
    _write(tmp_path, _group_v2(str(6 * GIB), GIB, at="sys/fs/cgroup/user/service"))
    assert free_memory(tmp_path) == GIB


def test_a_container_whose_own_path_is_not_mounted(tmp_path: Path) -> None:
    _write(tmp_path, {"proc/self/cgroup": "0::/docker/abc\n"} | _group_v2(str(2 * GIB), GIB))
    assert free_memory(tmp_path) == GIB


def test_version_1(tmp_path: Path) -> None:
    at = "sys/fs/cgroup/memory/docker/abc"
    files = {
        "proc/self/cgroup": "12:cpu,cpuacct:/docker/abc\n5:memory:/docker/abc\n",
        f"{at}/memory.limit_in_bytes": str(3 * GIB),
        f"{at}/memory.usage_in_bytes": str(2 * GIB),
        f"{at}/memory.stat": f"cache 1\ntotal_inactive_file {GIB}\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": str(5 * GIB),
        "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 0\n",
    }
    _write(tmp_path, files)
    assert free_memory(tmp_path) == 2 * GIB


def test_a_group_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    _write(tmp_path, {"proc/self/cgroup": "0::/\n"} | _group_v2(str(GIB), 2 * GIB))
    assert free_memory(tmp_path) == 0


@pytest.mark.parametrize("nonsense", ["", "abc", "-5"])
def test_unreadable_numbers_are_no_limit(tmp_path: Path, nonsense: str) -> None:
    _write(tmp_path, {"proc/self/cgroup": "0::/\n"} | _group_v2(nonsense, 0))
    assert free_memory(tmp_path) == 8 * GIB
