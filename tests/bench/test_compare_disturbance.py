"""What other programs use while a contender runs: seen when they do, and not confused with the contender's own work."""

import subprocess
import sys
import time

import psutil
import pytest

from octavo.bench.compare.disturbance import Disturbance

SPIN = "while True: pass"


def test_a_stranger_is_seen_and_the_contender_is_not() -> None:
    busy = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        began, used_before = time.monotonic(), psutil.Process(busy.pid).cpu_times().user
        as_stranger, as_contender = Disturbance(None), Disturbance(busy.pid)
        time.sleep(1.0)
        stranger, contender = as_stranger.share(None), as_contender.share(busy.pid)
        used = psutil.Process(busy.pid).cpu_times().user - used_before
        available = (time.monotonic() - began) * (psutil.cpu_count() or 1)
    finally:
        busy.kill()
        busy.wait()
    # Whatever else runs on this machine is in both shares; the spinning process, however much it got, only in one.
    assert used > 0
    assert stranger - contender == pytest.approx(used / available, abs=0.05)


def test_shares_lie_between_nothing_and_all() -> None:
    watch = Disturbance(None)
    assert 0.0 <= watch.share(99_999_999) <= 1.0
