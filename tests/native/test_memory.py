"""Memory of weights and caches: where it begins, what it holds, and that the system may give it huge pages."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from octavo.ops.native.memory import HUGE_PAGE, LINE, Arena, huge_memory

SMAPS = Path("/proc/self/smaps")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def test_it_is_zeroed_and_begins_on_a_huge_page() -> None:
    memory = huge_memory(3 * HUGE_PAGE + 5)
    assert memory.shape == (3 * HUGE_PAGE + 5,)
    assert memory.ctypes.data % HUGE_PAGE == 0
    assert not memory.any()


@pytest.mark.skipif(not (SMAPS.exists() and HUGE_PAGES.exists()), reason="a system without huge pages on request")
def test_it_is_private_and_marked_for_huge_pages() -> None:
    """Shared memory, which Python's mmap makes by default, gets none."""
    memory = huge_memory(8 * HUGE_PAGE)
    mapping = _mapping_of(memory)
    assert mapping.partition("\n")[0].split()[1] == "rw-p"
    flags = re.search(r"^VmFlags:(.*)$", mapping, re.MULTILINE)
    assert flags is not None
    assert "hg" in flags[1].split()


def test_pieces_of_an_arena_do_not_overlap() -> None:
    arena = Arena()
    pieces = [arena.take(size) for size in (1, 64, 65, 1000, 0, 3)]
    for number, piece in enumerate(pieces):
        assert piece.size == 0 or piece.ctypes.data % LINE == 0
        assert not piece.any()
        piece.fill(number + 1)
    assert all((piece == number + 1).all() for number, piece in enumerate(pieces))


def test_a_size_that_no_system_has() -> None:
    with pytest.raises(MemoryError, match="the system refuses"):
        huge_memory(1 << 60)


def _mapping_of(memory: np.ndarray) -> str:
    """The entry of /proc/self/smaps that holds the first byte."""
    address = memory.ctypes.data
    for entry in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", SMAPS.read_text(), flags=re.MULTILINE):
        if (bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", entry)) and int(bounds[1], 16) <= address < int(
            bounds[2], 16
        ):
            return entry
    raise AssertionError(f"{address:x} is not mapped")
