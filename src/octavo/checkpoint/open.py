"""open_checkpoint: which kind of checkpoint a local path is, and the WeightSource that reads it.

Names and downloads are `store.py`'s; this file sees paths only.
"""

from __future__ import annotations

from pathlib import Path

from octavo.checkpoint.gguf import GGUFSource
from octavo.checkpoint.gguf_file import gguf_in
from octavo.checkpoint.safetensors import CONFIG, SafetensorsSource
from octavo.checkpoint.source import WeightSource
from octavo.errors import CheckpointError

PICKLED = (".bin", ".pt", ".pth", ".ckpt")


def open_checkpoint(path: str | Path) -> WeightSource:
    """Open a `.gguf` file, a directory with exactly one, or a Hugging Face directory.

    CheckpointError when it is none of them or broken; pickled weights (.bin, .pt) are refused, because reading
    them runs code from the file. UnsupportedModel for a sound checkpoint that Octavo does not serve.
    """
    path = Path(path)
    if path.is_dir():
        return _open_directory(path)
    if path.suffix == ".safetensors":
        raise CheckpointError(f"{path}: give the directory that holds it together with {CONFIG}")
    if path.suffix in PICKLED:
        raise _pickled(path)
    return GGUFSource(path)


def _open_directory(directory: Path) -> WeightSource:
    if any(directory.glob("*.safetensors*")):
        return SafetensorsSource(directory)
    gguf = gguf_in(directory)
    if gguf is not None:
        return GGUFSource(gguf)
    for path in sorted(directory.iterdir()):
        if path.suffix in PICKLED:
            raise _pickled(path)
    raise CheckpointError(f"{directory}: no model here; wanted {CONFIG} with *.safetensors, or one .gguf file")


def _pickled(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path}: pickled weights are not read, because loading them can run any code. Use the model's "
        "safetensors or GGUF files, or convert it: transformers' save_pretrained() writes safetensors."
    )
