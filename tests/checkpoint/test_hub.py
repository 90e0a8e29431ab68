"""Pulling from a hub: the real huggingface_hub client against a hub on the loopback interface."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_hub import FakeHub

from octavo.checkpoint.store import Store
from octavo.errors import StoreError

REPO = {
    "README.md": b"not needed",
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "chat_template.jinja": b"x",
    "model-00001-of-00002.safetensors": bytes(3000),
    "model-00002-of-00002.safetensors": bytes(2000),
    "model.safetensors.index.json": b"{}",
    "consolidated.safetensors": bytes(9000),
    "pytorch_model.bin": bytes(9000),
    "onnx/config.json": b"{}",
}


def store_of(tmp_path: Path, hub: FakeHub) -> Store:
    return Store(tmp_path / "store", hub_endpoint=hub.url)


def test_only_the_needed_files_are_fetched(tmp_path: Path, hub: FakeHub) -> None:
    hub.repos["org/model"] = REPO
    told: list[tuple[str, int, int]] = []
    store = store_of(tmp_path, hub)
    path = store.resolve("org/model", progress=lambda *progress: told.append(progress))
    wanted = {name: data for name, data in REPO.items() if name.startswith(("config", "tok", "chat", "model"))}
    placed = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert placed.pop("octavo.json")
    assert placed == wanted
    total = sum(map(len, wanted.values()))
    assert told[-1] == ("Downloading org/model", total, total)
    (model,) = store.list()
    assert (model.name, model.bytes, model.license) == ("org/model", total, "apache-2.0")
    store.remove("org/model")
    assert store.list() == []


def test_one_named_gguf(tmp_path: Path, hub: FakeHub) -> None:
    hub.repos["org/model"] = {"a-Q4.gguf": b"4" * 50, "sub/b-Q8.gguf": b"8" * 99, "README.md": b""}
    store = store_of(tmp_path, hub)
    assert store.resolve("org/model:a-Q4.gguf").read_bytes() == b"4" * 50
    assert store.resolve("org/model:sub/b-Q8.gguf").read_bytes() == b"8" * 99
    assert [model.name for model in store.list()] == ["org/model:a-Q4.gguf", "org/model:sub/b-Q8.gguf"]
    with pytest.raises(
        StoreError, match=r"no file c\.gguf\. Its GGUF files are: org/model:a-Q4\.gguf, org/model:sub/b"
    ):
        store.resolve("org/model:c.gguf")
    with pytest.raises(StoreError, match=r"holds no safetensors weights\. Its GGUF files are: org/model:a-Q4"):
        store.resolve("org/model")


def test_the_only_gguf_needs_no_name(tmp_path: Path, hub: FakeHub) -> None:
    hub.repos["org/model"] = {"a.gguf": b"4" * 50, "README.md": b""}
    assert store_of(tmp_path, hub).resolve("org/model").name == "a.gguf"


def test_pickled_weights_only(tmp_path: Path, hub: FakeHub) -> None:
    hub.repos["org/model"] = {"config.json": b"{}", "pytorch_model.bin": b"x"}
    with pytest.raises(StoreError, match=r"holds no safetensors weights\. It has no GGUF file either"):
        store_of(tmp_path, hub).resolve("org/model")


def test_no_such_repository(tmp_path: Path, hub: FakeHub) -> None:
    with pytest.raises(StoreError, match="org/absent: no such model on the hub, or it is private"):
        store_of(tmp_path, hub).resolve("org/absent")


def test_broken_pull_is_resumed(tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # the client waits between its tries
    hub.repos["org/model"] = {"a.safetensors": bytes(1000), "b.safetensors": bytes(5000)}
    store = store_of(tmp_path, hub)
    hub.cut_after = 1000
    with pytest.raises(StoreError, match=r"org/model: the model hub cannot be reached .* pull again, which resumes"):
        store.resolve("org/model")
    assert store.list() == []
    hub.cut_after = None
    hub.requests.clear()
    path = store.resolve("org/model")
    assert sorted(file.stat().st_size for file in path.glob("*.safetensors")) == [1000, 5000]
    fetched = [path.rpartition("/")[2] for method, path in hub.requests if method == "GET" and "/resolve/" in path]
    assert fetched == ["b.safetensors"]


def test_no_network(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        store = Store(tmp_path / "store", hub_endpoint=endpoint)
        with pytest.raises(StoreError, match=r"org/model: the model hub cannot be reached \(.*\)\. Check the network"):
            store.resolve("org/model")
    assert store.list() == []


def test_full_disk(tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repos["org/model"] = {"a.gguf": b"4" * 5_000_000}
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1_000_000))
    with pytest.raises(StoreError, match=r"org/model: the disk of .* is too full: 5 MB needed, 1 MB free"):
        store_of(tmp_path, hub).resolve("org/model")


def test_the_store_imports_nothing_heavy_until_it_pulls() -> None:
    heavy = {"huggingface_hub", "filelock", "numpy"}
    code = f"import sys, octavo.checkpoint.store; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
