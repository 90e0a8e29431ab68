"""The store on disk: one directory per model, with a manifest, placed by one rename and therefore whole or absent.

<root>/<quoted name>/octavo.json   the manifest, and beside it the model's files
<root>/.partial/<quoted name>/     what a pull has so far; <quoted name>.lock is held while one runs
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec

from octavo.checkpoint.transfer import Progress, bytes_in

MANIFEST = "octavo.json"
PARTIAL = ".partial"
REMOVED = "removed-"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`file` is the model's path inside its directory, or empty when the directory is the model."""

    name: str
    file: str
    bytes: int
    license: str
    source: str


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model in the store. `path` is what `open_checkpoint` takes; `source` says where it came from."""

    name: str
    path: Path
    bytes: int
    license: str
    source: str


def directory_of(root: Path, name: str) -> Path:
    """Where the model `name` lies. Quoting keeps every name inside `root` and apart from all others."""
    return root / quote(name, safe="", errors="surrogateescape").replace(".", "%2E", 1 if name.startswith(".") else 0)


def read_installed(directory: Path) -> StoredModel | None:
    """The model in `directory`; None when there is none, or its files are not those that were placed."""
    try:
        manifest = msgspec.json.decode((directory / MANIFEST).read_bytes(), type=Manifest)
        stored_bytes = bytes_in(directory) - (directory / MANIFEST).stat().st_size
    except (OSError, msgspec.DecodeError):
        return None
    if stored_bytes != manifest.bytes:
        return None
    return StoredModel(manifest.name, directory / manifest.file, manifest.bytes, manifest.license, manifest.source)


@contextmanager
def pulling(root: Path, name: str, progress: Progress) -> Iterator[Path]:
    """Holds the lock on pulls of `name`, waiting for another process that has it, and gives the partial directory.

    The system drops the lock with its process, so whatever is found in the partial directory is a leftover.
    """
    import filelock

    partial = directory_of(root / PARTIAL, name)
    partial.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(f"{partial}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        progress(f"Waiting for another pull of {name}", 0, 0)
        lock.acquire()
    try:
        partial.mkdir(exist_ok=True)
        for grave in partial.parent.glob(f"{REMOVED}*"):
            shutil.rmtree(grave, ignore_errors=True)
        yield partial
    finally:
        lock.release()


def place(root: Path, staged: Path, manifest: Manifest) -> StoredModel:
    """Make the files in `staged` (on the same file system) the model `manifest.name`, all at once."""
    (staged / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    for path in [*staged.rglob("*"), staged]:
        _sync(path)
    target = directory_of(root, manifest.name)
    if target.exists():  # damaged, or it would not have been pulled again
        _discard(root, target)
    staged.rename(target)
    _sync(root)
    return StoredModel(manifest.name, target / manifest.file, manifest.bytes, manifest.license, manifest.source)


def remove_installed(root: Path, name: str) -> None:
    """Take the model and any partial pull of it away. Running servers keep the files that they have mapped."""
    for directory in (directory_of(root, name), directory_of(root / PARTIAL, name)):
        if directory.exists():
            _discard(root, directory)


def _discard(root: Path, directory: Path) -> None:
    """A rename first, so that nobody sees a half-deleted model."""
    grave = root / PARTIAL / f"{REMOVED}{uuid.uuid4().hex}"
    grave.parent.mkdir(exist_ok=True)
    directory.rename(grave)
    shutil.rmtree(grave, ignore_errors=True)  # a pull sweeps up what is left


def _sync(path: Path) -> None:
    """Have the file's or directory's contents on disk before what comes next."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
