"""Scratch buffers: one address from step to step, sizes held to what was reserved."""

import numpy as np
import pytest

from octavo.layers.scratch import Scratch
from octavo.ops.reference.backend import ReferenceBackend


def test_rows_are_views_of_one_buffer() -> None:
    scratch = Scratch(ReferenceBackend("float64"))
    scratch.reserve("stream", 8, 3)
    scratch.reserve("stream", 8, 3)
    scratch.allocate()
    first, second = scratch.rows("stream", 2), scratch.rows("stream", 8)
    assert (first.shape, second.shape, first.dtype) == ((2, 3), (8, 3), np.float64)
    assert first.__array_interface__["data"] == second.__array_interface__["data"]


def test_disagreements_are_our_own_bugs() -> None:
    scratch = Scratch(ReferenceBackend())
    scratch.reserve("stream", 8, 3)
    with pytest.raises(AssertionError, match="two shapes"):
        scratch.reserve("stream", 8, 4)
    scratch.allocate()
    with pytest.raises(AssertionError, match="9 rows asked"):
        scratch.rows("stream", 9)
