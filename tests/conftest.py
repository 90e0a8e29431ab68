"""Fixtures that several areas share. This file also puts tests/ on the import path, for the modules beside it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tiny_models import write_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """tiny_model(name): the directory of a tiny checkpoint (see tiny_models.TINY), made once per session."""
    made: dict[str, Path] = {}

    def directory(name: str) -> Path:
        if name not in made:
            made[name] = write_tiny_model(name, tmp_path_factory.mktemp(name))
        return made[name]

    return directory
