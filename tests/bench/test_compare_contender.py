"""The parent's end of the line protocol, against a fake peer that misbehaves in every way a real one can."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from octavo.bench.compare.contender import Contender, ContenderFailed, ContenderHung, JobFailed
from octavo.bench.compare.workloads import Metric

FAKE = Path(__file__).parent / "fake_peer.py"
JOB = {"kind": "generate", "settings": {"kv": "f16"}}


def contender(behaviour: str) -> Contender:
    return Contender("fake", [sys.executable, str(FAKE), behaviour])


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    yield
    left = [child for child in psutil.Process().children(recursive=True) if str(FAKE) in child.cmdline()]
    assert not left


def test_jobs_are_answered_by_one_process() -> None:
    with contender("works") as fake:
        first, second = fake.run(JOB, 30), fake.run(JOB, 30)
    assert (first.id, second.id) == (1, 2)
    assert first.settings == {"kv": "f16"}
    assert first.versions == {"fake": "1.0"}
    assert [metric.rate(first.figures) for metric in Metric] == [200.0, 100.0, 50.0]


def test_a_refused_job_leaves_the_contender_alive() -> None:
    with contender("refuses") as fake:
        for _ in range(2):
            with pytest.raises(JobFailed, match="no such model here"):
                fake.run(JOB, 30)


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("crash", r"exit code 139: Segmentation fault \(pretended\)"),
        ("garbage", "is no result: 'llama_model_loader"),
        ("endless-line", "is no result: 'xxx"),
        ("wrong-number", "is no result"),
    ],
)
def test_broken_contenders_are_ended_with_a_reason(behaviour: str, words: str) -> None:
    with contender(behaviour) as fake, pytest.raises(ContenderFailed, match=words):
        fake.run(JOB, 30)


def test_a_hanging_contender_is_ended_at_once_when_its_time_is_over() -> None:
    began = time.monotonic()
    with contender("hang") as fake, pytest.raises(ContenderHung, match=r"no answer within 0\.5 s"):
        fake.run(JOB, 0.5)
    assert time.monotonic() - began < 8


def test_a_contender_that_cannot_be_started() -> None:
    with Contender("fake", ["/nowhere/python"]) as fake, pytest.raises(ContenderFailed, match="could not be started"):
        fake.run(JOB, 30)


def test_a_crashed_contender_starts_anew() -> None:
    with contender("crash-later") as fake:
        assert fake.run(JOB, 30).id == 1
        assert fake.run(JOB, 30).id == 2
        with pytest.raises(ContenderFailed):
            fake.run(JOB, 30)
        assert fake.run(JOB, 30).id == 4


def test_an_idle_contender_is_kept_and_a_spinning_one_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.bench.compare.contender.SETTLE_S", 0.5)
    with contender("works") as idle, contender("spins") as spinning:
        idle.run(JOB, 30)
        spinning.run(JOB, 30)
        assert idle.settle()
        assert not spinning.settle()
        assert spinning.settle(), "an ended contender uses nothing"
        assert spinning.run(JOB, 30).id == 2
