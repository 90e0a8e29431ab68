"""Fixtures of the native kernels' tests: a thread team of each ISA level that this CPU runs."""

from collections.abc import Iterator

import pytest
from native_ops import ISA_LEVELS, NativeTeam, native_team, runs_here


@pytest.fixture(scope="session", params=ISA_LEVELS)
def team(request: pytest.FixtureRequest) -> Iterator[NativeTeam]:
    if not runs_here(request.param):
        pytest.skip(f"this CPU has no {request.param}")
    with native_team(request.param) as team:
        yield team
