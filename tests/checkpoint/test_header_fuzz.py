"""Randomly damaged files: opening one gives a checkpoint or a CheckpointError, never another exception, and never
takes memory out of proportion to the file."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from tiny_gguf import Tiny, write_gguf

from octavo.checkpoint.gguf import GGUFSource
from octavo.checkpoint.mapped import MappedFile
from octavo.checkpoint.safetensors_header import read_header
from octavo.errors import CheckpointError

MEMORY_LIMIT = 4 << 20  # bytes; the files have some 10 kB
HEADER_BYTES = 1500  # damage is done here, where the structure is

EXTREMES = st.sampled_from(
    [b"\0" * 8, b"\xff" * 8, b"\0" * 7 + b"\x40", b"\xff\xff\xff\x7f", b"\x09\0\0\0", b"\x08\0\0\0"]
)
DAMAGE = st.lists(
    st.tuples(st.integers(0, HEADER_BYTES), EXTREMES | st.binary(min_size=1, max_size=4)), min_size=1, max_size=4
)
fresh_names = itertools.count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def gguf_bytes(folder: Path) -> bytes:
    tiny = Tiny(layers=1, hidden=8, heads=2, kv_heads=1, head_dim=4, ffn=4, vocab=4)
    edit = lambda writer: writer.add_token_list(["a", "b", "c", "d"])  # noqa: E731
    return write_gguf(folder / "good.gguf", tiny, edit=edit).read_bytes()


@pytest.fixture(scope="module")
def safetensors_bytes(folder: Path) -> bytes:
    tensors = {f"layer.{i}.weight": np.ones((3, 4), ml_dtypes.bfloat16) for i in range(8)}
    save_file(tensors, folder / "good.safetensors", metadata={"format": "pt"})
    return (folder / "good.safetensors").read_bytes()


def damaged(data: bytes, damage: list[tuple[int, bytes]], cut: int | None) -> bytes:
    result = bytearray(data)
    for place, replacement in damage:
        place %= len(data)
        result[place : place + len(replacement)] = replacement
    return bytes(result[:cut])


def check_opening(path: Path, data: bytes, open_file: Callable[[Path], None]) -> None:
    path.write_bytes(data)
    tracemalloc.start()
    try:
        open_file(path)
    except CheckpointError as error:
        assert str(path) in str(error)  # noqa: PT017
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        path.unlink()
    assert peak < MEMORY_LIMIT


def open_gguf(path: Path) -> None:
    source = GGUFSource(path)
    for name in source.names:
        assert source.tensor(name).data.nbytes <= source.total_bytes
    source.close()


def open_safetensors(path: Path) -> None:
    file = MappedFile(path)
    try:
        for entry in read_header(file).values():
            assert len(file.view(entry.offset, entry.nbytes)) == entry.nbytes
    finally:
        file.close()


@settings(max_examples=400, deadline=None)
@given(damage=DAMAGE, cut=st.none() | st.integers(0, 4000))
def test_damaged_gguf(folder: Path, gguf_bytes: bytes, damage: list[tuple[int, bytes]], cut: int | None) -> None:
    check_opening(folder / f"{next(fresh_names)}.gguf", damaged(gguf_bytes, damage, cut), open_gguf)


@settings(max_examples=400, deadline=None)
@given(damage=DAMAGE, cut=st.none() | st.integers(0, 1200))
def test_damaged_safetensors(
    folder: Path, safetensors_bytes: bytes, damage: list[tuple[int, bytes]], cut: int | None
) -> None:
    data = damaged(safetensors_bytes, damage, cut)
    check_opening(folder / f"{next(fresh_names)}.safetensors", data, open_safetensors)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)
ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "F4", "X"]) | JSON,
        "shape": st.lists(st.integers(-1, 4) | st.just(2**62), max_size=3) | JSON,
        "data_offsets": st.lists(st.integers(-8, 64) | st.just(2**63), min_size=2, max_size=2) | JSON,
    }
)


@settings(max_examples=300, deadline=None)
@given(header=st.dictionaries(st.text(max_size=4), ENTRY | JSON, max_size=3) | JSON)
def test_arbitrary_safetensors_headers(folder: Path, header: object) -> None:
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + bytes(32)
    check_opening(folder / f"{next(fresh_names)}.safetensors", data, open_safetensors)


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 50_000, b"9" * 10_000, b'{"a": 1, "a": 2}', b"\xff"])
def test_hostile_json(folder: Path, text: bytes) -> None:
    path = folder / "hostile.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(CheckpointError, match="broken safetensors header"):
        open_safetensors(path)
