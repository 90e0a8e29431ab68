"""Fixtures that several areas share. This file also puts tests/ on the import path, for the modules beside it."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from gguf_copy import QUANTIZED, write_gguf_copy
from octavo.checkpoint.catalog import DEFAULT_MODEL
from octavo.checkpoint.store import Store, default_store_dir
from octavo.errors import StoreError
from octavo.ops.native import library
from tiny_models import write_tiny_model


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--native-library", type=Path, help="a liboctavo.so to test instead of the installed one")


def pytest_configure(config: pytest.Config) -> None:
    if (path := config.getoption("--native-library")) is not None:
        library.library_path = lambda: path


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_works() -> Iterator[None]:
    """A shell that starts the tests in the background (`make test &`) makes them, and the processes that they start,
    ignore SIGINT; tests of Ctrl-C need its usual effect."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


# Property tests are about what comes out, not about how long a busy machine takes.
settings.register_profile("octavo", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("octavo")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """tiny_model(name): where a tiny checkpoint lies, made once per session: a directory (see tiny_models.TINY) or a
    GGUF file (see gguf_copy.QUANTIZED)."""
    made: dict[str, Path] = {}

    def path(name: str) -> Path:
        if name not in made:
            directory = tmp_path_factory.mktemp(name)
            if name in QUANTIZED:
                original, formats = QUANTIZED[name]
                made[name] = write_gguf_copy(path(original), directory / "model.gguf", formats)
            else:
                made[name] = write_tiny_model(name, directory)
        return made[name]

    return path


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The GGUF file of the default model, SmolLM2-135M-Instruct; pulled (93 MB) when the store does not have it.

    Skips only where it cannot be downloaded; a file that is not the pinned one fails.
    """
    try:
        return Store(default_store_dir()).resolve(DEFAULT_MODEL)
    except StoreError as error:
        if "could not download" not in str(error):
            raise
        pytest.skip(f"needs the default model: {error}")
