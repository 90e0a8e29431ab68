"""The thread team: programs that follow each other at once, each run exactly once by however many workers."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from native_ops import native_team, step_of, view

from octavo.ops.native.abi import TOKENS, Op, OpKind


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_every_op_of_every_program_runs_once(threads: int) -> None:
    """Longer programs after shorter ones, so that a worker that is late must not run into the next program."""
    tokens = 64
    sum_TD, one_TD = np.zeros((tokens, 256), np.float32), np.ones((tokens, 256), np.float32)
    ops = (Op * 5)(
        *[Op(kind=OpKind.ADD, rows=TOKENS, x=view(sum_TD), y=view(one_TD), out=view(sum_TD)) for _ in range(5)]
    )
    step, done = step_of(tokens), 0
    with native_team("scalar", threads) as team:
        for count in [0, 1, 5, 2, 4, 1, 0, 3] * (
            100 if threads < 3 else 10
        ):  # with few cores, workers sleep in between
            team.library.octavo_run(team.handle, ops, count, ctypes.byref(step))
            done += count
            assert (sum_TD == done).all()


def test_teams_come_and_go() -> None:
    for threads in (1, 2, 5) * 20:
        with native_team("scalar", threads):
            pass
