"""Calls that are wrong on purpose: what the sanitizers must find. test_sanitizers.py runs them; pytest does not collect
this file by itself.
"""

from __future__ import annotations

import numpy as np
from native_ops import native_team, view

from octavo.ops.native.abi import OpKind

ROW = 4096  # bytes
LONG_ROW = 65536  # many of them take long enough for every worker to wake and take some


def test_reads_past_the_end() -> None:
    data, out = np.zeros((1, ROW // 4), np.float32), np.zeros((2, 16), np.float32)
    x = view(data)
    x.stride = x.columns = ROW
    with native_team("scalar", threads=1) as team:
        team.run(OpKind.PROBE_READ, 2, x=x, out=out)


def test_two_tasks_write_one_place() -> None:
    data, out = np.zeros((1, LONG_ROW // 4), np.float32), np.zeros((1, 16), np.float32)
    x, same = view(data), view(out)
    x.columns = LONG_ROW
    x.stride = same.stride = 0
    with native_team("scalar", threads=2) as team:
        team.run(OpKind.PROBE_READ, 2000, x=x, out=same)
