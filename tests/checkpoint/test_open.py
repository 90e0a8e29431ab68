"""open_checkpoint: what each kind of path gives or gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tiny_gguf import Tiny, write_gguf

from octavo.checkpoint.gguf import GGUFSource
from octavo.checkpoint.open import open_checkpoint
from octavo.checkpoint.safetensors import SafetensorsSource
from octavo.errors import CheckpointError


def test_file_or_directory_with_one_gguf(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", Tiny())
    assert isinstance(open_checkpoint(path), GGUFSource)
    assert isinstance(open_checkpoint(str(tmp_path)), GGUFSource)


def test_directory_with_several_gguf(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_gguf(tmp_path / f"{name}.gguf", Tiny())
    with pytest.raises(CheckpointError, match=r"holds 2 GGUF files; name one of them: a\.gguf, b\.gguf"):
        open_checkpoint(tmp_path)


def test_safetensors_directory(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    assert isinstance(open_checkpoint(tmp_path), SafetensorsSource)
    with pytest.raises(CheckpointError, match="give the directory that holds it"):
        open_checkpoint(tmp_path / "model.safetensors")


def test_pickled_weights_are_refused_with_the_safe_way_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    torch.save({"a": torch.ones(2)}, tmp_path / "pytorch_model.bin")
    for path in (tmp_path, tmp_path / "pytorch_model.bin"):
        with pytest.raises(CheckpointError, match=r"pytorch_model\.bin: pickled weights are not read.*safetensors"):
            open_checkpoint(path)


def test_paths_that_hold_no_model(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no model here"):
        open_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="no such file"):
        open_checkpoint(tmp_path / "absent")
    (tmp_path / "notes.txt").write_text("hello, this is no model")
    with pytest.raises(CheckpointError, match="not a GGUF file"):
        open_checkpoint(tmp_path / "notes.txt")


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(CheckpointError, match="not a file"):
        open_checkpoint(tmp_path / "pipe.gguf")
