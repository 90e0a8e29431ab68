"""The native library under the address, undefined-behaviour and thread sanitizers: a part of its tests, for the default
run (`make sanitize` runs them all), and that faults are found.
"""

from __future__ import annotations

import pytest
from sanitized import SANITIZERS, missing, run_sanitized

TESTS = ["tests/native/test_elementwise.py", "tests/native/test_embed.py", "tests/native/test_team.py"]
FAULTS = {
    "address": ("test_reads_past_the_end", "heap-buffer-overflow"),
    "thread": ("test_two_tasks_write_one_place", "data race"),
}

pytestmark = pytest.mark.slow


@pytest.fixture(params=SANITIZERS)
def sanitizer(request: pytest.FixtureRequest) -> str:
    if reason := missing(request.param):
        pytest.skip(reason)
    return request.param


def test_nothing_is_found(sanitizer: str) -> None:
    done = run_sanitized(sanitizer, TESTS, timeout_s=240)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert " passed" in done.stdout


def test_a_fault_is_found(sanitizer: str) -> None:
    test, words = FAULTS[sanitizer]
    done = run_sanitized(sanitizer, ["-s", f"tests/native/faulty_calls.py::{test}"], timeout_s=120)
    assert done.returncode != 0
    assert words in done.stdout + done.stderr
