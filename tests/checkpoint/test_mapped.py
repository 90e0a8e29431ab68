"""A mapped file that is read from end to end stays readable and does not stay in this process's memory."""

import sys
from pathlib import Path

import pytest

from octavo.checkpoint.mapped import KEPT_BYTES, MappedFile

PIECE = 4 << 20
PIECES = 16


def resident_file_bytes() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssFile"))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pages_that_were_read_are_let_go(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"".join(bytes([number]) * PIECE for number in range(PIECES)))
    file = MappedFile(path)
    before, views, most = resident_file_bytes(), [], 0
    for number in range(PIECES):
        views.append(file.view(number * PIECE, PIECE))
        assert bytes(views[-1]) == bytes([number]) * PIECE
        most = max(most, resident_file_bytes() - before)
    assert KEPT_BYTES / 2 < most <= KEPT_BYTES + 3 * PIECE
    assert all(view[0] == view[-1] == number for number, view in enumerate(views)), "an earlier view has changed"
    views.clear()
    file.close()
