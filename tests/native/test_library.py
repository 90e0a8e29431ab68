"""Libraries that are none: each is a ConfigError that says why, and never the end of the process."""

import ctypes.util
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.errors import ConfigError
from octavo.ops.native import library


def _cut(keep: Callable[[int], int]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        whole = library.library_path().read_bytes()
        path.write_bytes(whole[: keep(len(whole))])

    return write


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.touch(), "cannot be loaded"),
    "text": (lambda path: path.write_text("not a library " * 100), "cannot be loaded"),
    "directory": (lambda path: path.mkdir(), "cannot be loaded"),
    "header only": (_cut(lambda _: 64), "cut short"),
    "part of a header": (_cut(lambda _: 20), "cut short"),
    "half": (_cut(lambda size: size // 2), "cut short"),
    "all but a byte": (_cut(lambda size: size - 1), "cut short"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_files_are_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, reason = BROKEN[kind]
    path = tmp_path / library.NAME
    write(path)
    monkeypatch.setattr(library, "library_path", lambda: path)
    with pytest.raises(ConfigError, match=f"{reason}.*Install Octavo again"):
        library.load_library.__wrapped__()


def test_another_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    name = ctypes.util.find_library("m")
    path = next((found for found in Path("/usr/lib").rglob(name)), None) if name else None
    if path is None:
        pytest.skip("no other library to try")
    monkeypatch.setattr(library, "library_path", lambda: path)
    with pytest.raises(ConfigError, match="cannot be loaded"):
        library.load_library.__wrapped__()
