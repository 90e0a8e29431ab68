"""The native library under the address, undefined-behaviour and thread sanitizers: a part of its tests, for the default
run (`make sanitize` runs them all), and that a fault in the library is found.
"""

from __future__ import annotations

import pytest
from sanitized import SANITIZERS, missing, run_sanitized

TESTS = ["tests/native/test_elementwise.py", "tests/native/test_embed.py"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SANITIZERS)
def test_nothing_is_found(name: str) -> None:
    if reason := missing(name):
        pytest.skip(reason)
    done = run_sanitized(name, TESTS, timeout_s=240)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert " passed" in done.stdout
