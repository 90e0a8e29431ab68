"""SafetensorsSource: a Hugging Face model directory (config.json and one or more safetensors files) as a WeightSource.

Finds the files, joins the shards and hands out views; the container itself is read in `safetensors_header.py`.
"""

from __future__ import annotations

import json
from collections.abc import Set
from pathlib import Path
from typing import Any

from octavo.checkpoint.mapped import MappedFile
from octavo.checkpoint.safetensors_header import Entry, read_header
from octavo.errors import CheckpointError, UnsupportedModel
from octavo.quant.raw import RawWeight

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_JSON_BYTES = 64 << 20

FORMAT_OF_DTYPE = {"F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16"}


class SafetensorsSource:
    """WeightSource over a directory. `config` is its config.json; `eos_token_id` comes from
    generation_config.json where that has one, because chat models list their end-of-turn token only there."""

    def __init__(self, directory: str | Path) -> None:
        """Opens and checks every file. CheckpointError names the file and tensor at fault; UnsupportedModel for
        weights that are quantised in a way that only the config tells (GPTQ, AWQ, fp8)."""
        self._directory = Path(directory)
        self._config = read_config(self._directory)
        _refuse_quantised(self._directory / CONFIG, self._config)
        self._files: list[MappedFile] = []
        self._tensors: dict[str, tuple[MappedFile, Entry]] = {}
        try:
            self._open_files()
        except BaseException:
            self.close()
            raise

    @property
    def config(self) -> dict[str, Any]:
        return self._config

    @property
    def names(self) -> Set[str]:
        return self._tensors.keys()

    @property
    def stored(self) -> list[tuple[str, tuple[int, ...]]]:
        entries = (entry for _, entry in self._tensors.values())
        return [(FORMAT_OF_DTYPE[entry.dtype], entry.shape) for entry in entries if entry.dtype in FORMAT_OF_DTYPE]

    @property
    def total_bytes(self) -> int:
        return sum(entry.nbytes for _, entry in self._tensors.values())

    def tensor(self, name: str) -> RawWeight:
        """A view of the mapped file. CheckpointError when absent, UnsupportedModel when not f64/f32/f16/bf16."""
        if name not in self._tensors:
            raise CheckpointError(f"{self._directory}: there is no tensor '{name}'")
        file, entry = self._tensors[name]
        form = FORMAT_OF_DTYPE.get(entry.dtype)
        if form is None:
            readable = ", ".join(FORMAT_OF_DTYPE)
            raise UnsupportedModel(f"{file.path}: tensor '{name}' has dtype {entry.dtype}; Octavo reads {readable}")
        return RawWeight.view(name, str(file.path), form, entry.shape, file.view(entry.offset, entry.nbytes))

    def close(self) -> None:
        while self._files:
            self._files.pop().close()

    def _open_files(self) -> None:
        for path, wanted in _shards(self._directory).items():
            if wanted and not path.exists():
                lost = f"{len(wanted)} tensors ('{wanted[0]}', ...)"
                raise CheckpointError(f"{path}: this shard is missing, and with it {lost}; fetch it")
            file = MappedFile(path)
            self._files.append(file)
            entries = read_header(file)
            absent = [name for name in wanted if name not in entries]
            if absent:
                raise CheckpointError(f"{path}: tensor '{absent[0]}' is absent, but {INDEX} says it is there")
            self._tensors |= {name: (file, entries[name]) for name in (wanted or entries)}


def read_config(directory: Path) -> dict[str, Any]:
    """config.json with the end tokens of generation_config.json. CheckpointError when missing or no JSON object."""
    config = _read_object(directory / CONFIG)
    if (directory / GENERATION_CONFIG).exists():
        ends = _read_object(directory / GENERATION_CONFIG).get("eos_token_id")
        if ends is not None:
            config["eos_token_id"] = ends
    return config


def _refuse_quantised(path: Path, config: dict[str, Any]) -> None:
    quantisation = config.get("quantization_config")
    if quantisation:
        method = quantisation.get("quant_method") if isinstance(quantisation, dict) else None
        raise UnsupportedModel(
            f"{path}: quantization_config with method {str(method)[:40]!r} is not supported; "
            "use the model's unquantised safetensors, or a GGUF file for a small one"
        )


def _shards(directory: Path) -> dict[Path, list[str]]:
    """Each file with the tensors that must be in it; an empty list stands for all it has."""
    if (directory / INDEX).exists():
        shards: dict[Path, list[str]] = {}
        for name, file in _read_index(directory / INDEX).items():
            shards.setdefault(directory / file, []).append(name)
        return shards
    if (directory / SINGLE).exists():
        return {directory / SINGLE: []}
    found = sorted(directory.glob("*.safetensors"))
    if len(found) != 1:
        what = f"{len(found)} safetensors files but no {INDEX}" if found else "no safetensors file"
        raise CheckpointError(f"{directory}: {what}")
    return {found[0]: []}


def _read_index(path: Path) -> dict[str, str]:
    weight_map = _read_object(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path}: has no 'weight_map'")
    for name, file in weight_map.items():
        if not isinstance(file, str) or not file.endswith(".safetensors") or Path(file).name != file:
            raise CheckpointError(f"{path}: tensor '{name}' points to {file!r}, which is no safetensors file beside it")
    return weight_map


def _read_object(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():  # reading a pipe, for one, would wait for ever
            raise CheckpointError(f"{path}: not a file")
        if path.stat().st_size > MAX_JSON_BYTES:
            raise CheckpointError(f"{path}: larger than {MAX_JSON_BYTES} bytes")
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: not a JSON object")
    return value
