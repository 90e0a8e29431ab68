"""The GGUF container: what the reader sees equals what the gguf package wrote and reads, and broken files are
refused with a message that names the file and the fault."""

from __future__ import annotations

import itertools
import struct
import subprocess
import sys
import time
from pathlib import Path

import gguf
import pytest
from tiny_gguf import Tiny, write_gguf

from octavo.checkpoint.gguf_file import GGUFFile
from octavo.errors import CheckpointError, UnsupportedModel


def add_every_value_type(writer: gguf.GGUFWriter) -> None:
    for bits in (8, 16, 32, 64):
        getattr(writer, f"add_uint{bits}")(f"test.u{bits}", 2**bits - 1)
        getattr(writer, f"add_int{bits}")(f"test.i{bits}", -(2 ** (bits - 1)))
    writer.add_float32("test.f32", 0.1)
    writer.add_float64("test.f64", 0.1)
    writer.add_bool("test.yes", True)
    writer.add_string("test.text", "größe 木 \U0001f600")
    writer.add_array("test.strings", ["a", "", "木"])
    writer.add_array("test.numbers", [1, -2, 3])
    writer.add_array("test.floats", [0.5, 1.5])
    writer.add_array("test.bools", [True, False])
    writer.add_array("test.nested", [[1, 2], [3]])


def header(entries: bytes = b"", *, tensors: int = 0, count: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, count) + entries


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def test_metadata_and_tensors_equal_the_gguf_package(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", Tiny(quant=gguf.GGMLQuantizationType.Q8_0), edit=add_every_value_type)
    reader = gguf.GGUFReader(path)
    with GGUFFile.open(path) as file:
        expected = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
        expected["test.nested"] = [[1, 2], [3]]  # GGUFReader.contents() does not read nested arrays
        assert file.metadata == expected
        assert file.metadata["test.yes"] is True
        assert len(file.tensors) == len(reader.tensors)
        for tensor in reader.tensors:
            info = file.tensors[tensor.name]
            assert info.format.ggml == tensor.tensor_type
            assert (list(info.shape), info.offset) == (tensor.shape.tolist()[::-1], tensor.data_offset)
            assert bytes(file.view(info)) == tensor.data.tobytes()


def test_version_2_is_read(tmp_path: Path) -> None:
    path = tmp_path / "v2.gguf"
    path.write_bytes(header(text("a") + struct.pack("<Ii", 5, -7), count=1, version=2))
    with GGUFFile.open(path) as file:
        assert file.metadata == {"a": -7}


def test_custom_alignment(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", Tiny(), edit=lambda writer: writer.add_custom_alignment(256))
    offsets = {t.name: t.data_offset for t in gguf.GGUFReader(path).tensors}
    with GGUFFile.open(path) as file:
        assert {name: info.offset for name, info in file.tensors.items()} == offsets
        assert all(offset % 256 == 0 for offset in offsets.values())


def test_large_vocabulary_opens_quickly(tmp_path: Path) -> None:
    words = [f"token{i}" for i in range(49152)]

    def vocabulary(writer: gguf.GGUFWriter) -> None:
        writer.add_token_list(words)
        writer.add_token_merges([f"{a} {b}" for a, b in itertools.pairwise(words)])
        writer.add_token_types([1] * len(words))

    path = write_gguf(tmp_path / "m.gguf", Tiny(), edit=vocabulary)
    seconds = []
    for _ in range(3):
        start = time.process_time()
        with GGUFFile.open(path) as file:
            seconds.append(time.process_time() - start)
            assert file.metadata["tokenizer.ggml.tokens"] == words
    assert min(seconds) < 0.3


def test_reader_needs_no_numpy() -> None:
    code = "import sys, octavo.checkpoint.gguf_file; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_truncated_tensor_data_is_found_at_open(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", Tiny())
    data = path.read_bytes()
    path.write_bytes(data[: -len(data) // 3])
    with pytest.raises(CheckpointError, match=r"m\.gguf: tensor '.*' ends at byte .* truncated"):
        GGUFFile.open(path)


HUGE = 2**62
BAD_FILES = {
    "empty": (b"", "cannot be read"),
    "other magic": (b"PK\x03\x04" + bytes(60), "not a GGUF file"),
    "header cut": (header()[:10], "inside tensor count"),
    "huge metadata count": (header(count=HUGE), "metadata count of"),
    "huge tensor count": (header(tensors=HUGE), "tensor count of"),
    "huge key": (header(struct.pack("<Q", HUGE) + bytes(9), count=1), "beyond the file"),
    "huge string array": (header(text("a") + struct.pack("<IIQ", 9, 8, HUGE), count=1), "items, the limit"),
    "long string array": (header(text("a") + struct.pack("<IIQ", 9, 8, 10**6), count=1), "cannot fit"),
    "long number array": (header(text("a") + struct.pack("<IIQ", 9, 10, 10**7), count=1), "truncated"),
    "array of unknown": (header(text("a") + struct.pack("<IIQ", 9, 77, 1), count=1), "unknown item type 77"),
    "unknown value": (header(text("a") + struct.pack("<IQ", 77, 1), count=1), "unknown value type 77"),
    "deep nesting": (header(text("a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 99, count=1), "nested"),
    "not UTF-8": (header(text("a") + struct.pack("<IQ", 8, 1) + b"\xff", count=1), "not UTF-8"),
    "key twice": (header((text("a") + struct.pack("<IB", 0, 1)) * 2, count=2), "appears twice"),
    "alignment 0": (header(text("general.alignment") + struct.pack("<II", 4, 0), count=1), "power of two"),
    "alignment text": (header(text("general.alignment") + struct.pack("<I", 8) + text("x"), count=1), "power of two"),
    "nine dims": (header(text("t") + struct.pack("<I9QIQ", 9, *[1] * 9, 0, 0), tensors=1), "9 dimensions"),
    "empty dim": (header(text("t") + struct.pack("<I1QIQ", 1, 0, 0, 0), tensors=1), "empty dimension"),
    "huge tensor": (header(text("t") + struct.pack("<I2QIQ", 2, HUGE, HUGE, 0, 0), tensors=1), "truncated"),
    "part of a block": (header(text("t") + struct.pack("<I1QIQ", 1, 33, 2, 0) + bytes(99), tensors=1), "no multiple"),
    "unaligned": (header(text("t") + struct.pack("<I1QIQ", 1, 1, 0, 3) + bytes(99), tensors=1), "alignment 32"),
    "overlap": (
        header(b"".join(text(n) + struct.pack("<I1QIQ", 1, 16, 0, 32 * i) for i, n in enumerate("ab")), tensors=2)
        + bytes(300),
        "overlap",
    ),
    "name twice": (header((text("t") + struct.pack("<I1QIQ", 1, 1, 0, 0)) * 2 + bytes(99), tensors=2), "appears twice"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_broken_files_are_refused(tmp_path: Path, kind: str) -> None:
    data, message = BAD_FILES[kind]
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=message) as caught:
        GGUFFile.open(path)
    assert str(path) in str(caught.value)


UNSUPPORTED_FILES = {
    "version 1": (header(version=1), "version 1"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "tensor type": (header(text("t") + struct.pack("<I1QIQ", 1, 4, 4242, 0) + bytes(99), tensors=1), "GGML type 4242"),
    "split": (header(text("split.count") + struct.pack("<IH", 2, 3), count=1), "one of 3 parts.*[Mm]erge"),
}


@pytest.mark.parametrize("kind", UNSUPPORTED_FILES)
def test_unsupported_files_say_so(tmp_path: Path, kind: str) -> None:
    data, message = UNSUPPORTED_FILES[kind]
    path = tmp_path / "other.gguf"
    path.write_bytes(data)
    with pytest.raises(UnsupportedModel, match=message):
        GGUFFile.open(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file"):
        GGUFFile.open(tmp_path / "absent.gguf")
    with pytest.raises(CheckpointError, match="not a file"):
        GGUFFile.open(tmp_path)
