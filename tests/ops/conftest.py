"""Every way of sampling there is: the reference's, and the native library's at each ISA level that this CPU runs."""

from collections.abc import Callable, Iterator

import pytest

from octavo.errors import ConfigError
from octavo.ops.native.library import load_library
from octavo.ops.native.sample import NativeSampler
from octavo.ops.reference import sample


@pytest.fixture(params=["reference", "scalar", "avx2", "avx512"])
def draw_samples(request: pytest.FixtureRequest) -> Iterator[Callable]:
    if request.param == "reference":
        yield sample.draw_samples
        return
    try:
        library = load_library()
    except ConfigError as error:  # tests/native fails without it; Octavo works
        pytest.skip(str(error))
    team = library.octavo_team_create(2, request.param.encode())
    if not team:
        pytest.skip(f"this CPU has no {request.param}")
    yield NativeSampler(library, team, 2).draw_samples
    library.octavo_team_free(team)
