"""Packing against the gguf package's dequantisation, against layout.h read byte by byte, and what it refuses."""

import ctypes
import threading
from pathlib import Path

import numpy as np
import pytest
from native_ops import NativeTeam
from packed_weights import GUARD, PLAIN, SCALE_BYTES, PackedWeight, blocks, expected, plain_rows

from octavo.checkpoint.gguf import GGUFSource
from octavo.ops.native.abi import KIND_CODES, Weight
from octavo.ops.native.library import load_library
from octavo.quant.dequantize import dequantize
from octavo.quant.formats import FORMATS

# Error of a value, in units of the row's largest, by the rounding of scale (and min) to float16.
ROUNDED = {"q2_k": 3, "q3_k": 1, "q4_k": 3, "q5_k": 3, "q6_k": 1, "iq4_xs": 1}
EXACT = [name for name in SCALE_BYTES if name not in ROUNDED]
ALL_HALVES = np.arange(65536, dtype=np.uint16).view(np.float16)


def packed(raw: np.ndarray, format: str) -> PackedWeight:
    form = FORMATS[format]
    weight = PackedWeight(len(raw), raw.shape[1] // form.block_bytes * form.block, format)
    assert weight.pack(raw) == 0
    assert (weight.guard == GUARD).all()
    return weight


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 33])
@pytest.mark.parametrize("columns", [32, 96, 576, 2304])
@pytest.mark.parametrize("format", EXACT)
def test_equals_the_gguf_package(team: NativeTeam, format: str, columns: int, rows: int) -> None:
    raw = blocks(format, rows, columns)
    values = packed(raw, format).unpack(team)
    assert len(np.unique(values)) > 2
    np.testing.assert_array_equal(values, expected(raw, format))


@pytest.mark.parametrize("rows", [1, 17, 33])
@pytest.mark.parametrize("columns", [256, 2304])
@pytest.mark.parametrize("format", ROUNDED)
def test_k_formats_lose_only_the_rounding_of_scales(team: NativeTeam, format: str, columns: int, rows: int) -> None:
    raw = blocks(format, rows, columns)
    values, wanted = packed(raw, format).unpack(team), expected(raw, format)
    largest = np.abs(wanted).max(axis=1, keepdims=True)
    assert np.abs(values - wanted).max() > 0
    assert (np.abs(values - wanted) / largest).max() <= ROUNDED[format] * 2**-11


@pytest.mark.parametrize("rows", [1, 16, 33])
@pytest.mark.parametrize("columns", [1, 31, 33, 576, 2305])
@pytest.mark.parametrize("format", PLAIN)
def test_plain_numbers_stay_as_they_are(team: NativeTeam, format: str, columns: int, rows: int) -> None:
    raw = plain_rows(format, rows, columns)
    np.testing.assert_array_equal(packed(raw, format).unpack(team), expected(raw, format))


def test_every_float16(team: NativeTeam) -> None:
    """As a weight, and as a scale: infinities, NaN, subnormals and zeros of both signs among them."""
    raw = ALL_HALVES.reshape(64, -1).view(np.uint8)
    np.testing.assert_array_equal(packed(raw, "f16").unpack(team), expected(raw, "f16"))
    raw = np.zeros((64, 1024, 34), np.uint8)
    raw[..., :2] = ALL_HALVES.reshape(64, 1024, 1).view(np.uint8)
    raw[..., 2:] = np.arange(-16, 16, dtype=np.int8).view(np.uint8)
    raw = raw.reshape(64, -1)
    np.testing.assert_array_equal(packed(raw, "q8_0").unpack(team), expected(raw, "q8_0"))


def test_products_of_scales_are_rounded_to_nearest_even(team: NativeTeam) -> None:
    """Q6_K blocks of which every code is 33, so that every weight is its group's scale."""
    raw = np.zeros((64, 1024, 210), np.uint8)
    raw[..., :128], raw[..., 128:192] = 0x11, 0xAA
    scale = np.random.default_rng(0).integers(-128, 128, (64, 1024, 16), np.int8)
    raw[..., 192:208], raw[..., 208:] = scale.view(np.uint8), ALL_HALVES.reshape(64, 1024, 1).view(np.uint8)
    with np.errstate(all="ignore"):
        product = ALL_HALVES.reshape(64, 1024, 1).astype(np.float32) * scale
        wanted = np.repeat(product.astype(np.float16), 16).astype(np.float32).reshape(64, -1)
    np.testing.assert_array_equal(packed(raw.reshape(64, -1), "q6_k").unpack(team), wanted)


@pytest.mark.parametrize("format", ROUNDED)
def test_any_bytes_are_packed(team: NativeTeam, format: str) -> None:
    """Random scales reach from zero to infinity and NaN. Where a group of 32 has ordinary weights, they are kept."""
    form = FORMATS[format]
    raw = np.random.default_rng(1).integers(0, 256, (33, form.row_bytes(2048)), np.uint8)
    values, wanted = (x.reshape(-1, 32) for x in (packed(raw, format).unpack(team), expected(raw, format)))
    largest = np.abs(wanted).max(axis=1, keepdims=True)
    ordinary = (largest < 4000).ravel()  # of larger ones the scale may be infinite in float16
    assert 0.2 < ordinary.mean() < 1
    # Scale x code and min may each be some times the group's largest weight.
    error = np.abs(values - wanted)[ordinary]
    assert (error <= 9 * 2**-11 * largest[ordinary] + 32 * 2**-25).all()


@pytest.mark.parametrize("format", [*SCALE_BYTES, *PLAIN])
def test_padding_decodes_to_zero(team: NativeTeam, format: str) -> None:
    columns = 33 if format == "bf16" else 256
    raw = plain_rows(format, 17, columns) if format in PLAIN else blocks(format, 17, columns)
    values = packed(raw, format).unpack(team, padding=True)
    assert values.shape == (32, 64 if format == "bf16" else 256)
    assert values[:17, :columns].any(axis=1).all()
    assert not values[17:].any()
    assert not values[:, columns:].any()


@pytest.mark.parametrize("format", ["q4_0", "q5_1", "q8_0", "q2_k", "q6_k"])
def test_bytes_lie_as_the_layout_says(format: str) -> None:
    """The codes and scales of one packed row, read by layout.h's words, give the gguf package's values."""
    raw = blocks(format, 16, 512)
    weight = packed(raw, format)
    w, data = weight.struct, weight.data
    blocks_, wide = 512 // 32, w.bits == 8
    lines = data[: blocks_ * (512 if wide else 256)].reshape(blocks_, -1, 16, 4)  # block, line, row, j
    if wide:
        code = lines.transpose(2, 0, 1, 3).reshape(16, 512)
    else:  # inputs 4t + j low, 16 + 4t + j high
        code = np.stack([lines & 15, lines >> 4]).transpose(3, 1, 0, 2, 4).reshape(16, 512)
    at = lines.size
    if w.bits == 5:
        fifth = np.unpackbits(data[at : at + blocks_ * 64], bitorder="little").reshape(blocks_, 8, 16, 4)
        code = code + 16 * fifth.transpose(2, 0, 1, 3).reshape(16, 512)
        at += blocks_ * 64
    groups = 512 // w.group
    scale = data[at : at + groups * 32].view(np.float16).reshape(groups, 16)
    at += -(-groups * 32 // 64) * 64
    minimum = data[at : at + groups * 32].view(np.float16).reshape(groups, 16) if w.has_min else np.zeros((groups, 16))
    scale_RI, min_RI = (np.repeat(x.T.astype(np.float32), w.group, axis=1) for x in (scale, minimum))
    values = scale_RI * (code.astype(np.float32) - w.zero) + min_RI
    np.testing.assert_allclose(values, expected(raw, format), rtol=0, atol=3 * 2**-11 * np.abs(values).max())


@pytest.mark.parametrize("format", ["q4_1", "q5_0", "q6_k", "bf16"])
def test_panels_may_be_packed_by_several_threads(format: str) -> None:
    raw = plain_rows(format, 105, 512) if format in PLAIN else blocks(format, 105, 512)
    whole, parts = packed(raw, format), PackedWeight(105, 512, format)
    threads = [
        threading.Thread(target=parts.pack, args=(raw[first : first + count], first))
        for first, count in ((96, 9), (0, 32), (32, 16), (48, 48))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(parts.data, whole.data)


def test_the_default_model(team: NativeTeam, smollm2_path: Path) -> None:
    source = GGUFSource(smollm2_path)
    for name in ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj"):
        raw = source.tensor(f"model.layers.7.{name}.weight")
        np.testing.assert_array_equal(packed(raw.data, raw.format).unpack(team), dequantize(raw))


@pytest.mark.parametrize("format", sorted(set(FORMATS) - set(SCALE_BYTES) - set(PLAIN)))
def test_formats_without_a_packing(format: str) -> None:
    weight = Weight()
    assert load_library().octavo_packing_of(FORMATS[format].ggml, ctypes.byref(weight)) == -1
    assert load_library().octavo_packing_of(-7, ctypes.byref(weight)) == -1


@pytest.mark.parametrize(
    ("row_bytes", "first", "count"),
    [
        (39, 0, 40),
        (41, 0, 40),
        (40, 8, 16),
        (40, 0, 41),
        (40, 32, 9),
        (40, -16, 16),
        (40, 0, -1),
        (40, 0, 17),
        (40, 48, 0),
    ],
)
def test_rows_that_do_not_fit(row_bytes: int, first: int, count: int) -> None:
    weight = PackedWeight(40, 64, "q4_1")
    assert weight.pack(np.zeros((64, row_bytes), np.uint8), first, count) == -1
    assert (weight.data == 0xFF).all()


def test_rows_of_another_packing() -> None:
    raw = blocks("q4_1", 16, 256)
    for other in ("q4_0", "q5_1", "q8_0", "q2_k", "iq4_nl", "bf16"):
        weight = PackedWeight(16, 256, other)
        weight.format = "q4_1"
        assert weight.pack(raw) == -1
    narrow = PackedWeight(16, 224, "q4_k")  # no multiple of the block of 256
    assert narrow.pack(np.zeros((16, 144), np.uint8)) == -1


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 0},
        {"rows": -1},
        {"columns": 0},
        {"columns": 2**24 + 1},
        {"bits": 6},
        {"bits": 0},
        {"group": 64},
        {"group": 0},
    ],
)
def test_layouts_that_do_not_exist(change: dict[str, int]) -> None:
    weight = Weight(**({"kind": KIND_CODES, "rows": 16, "columns": 64, "bits": 4, "group": 32} | change))
    assert load_library().octavo_weight_layout(ctypes.byref(weight)) == -1


def test_sizes() -> None:
    """Bytes per weight: what a step reads from memory."""
    for format, bits in {"q4_0": 4.5, "q4_1": 5, "q5_1": 6, "q8_0": 8.5, "q6_k": 9, "q2_k": 6, "bf16": 16}.items():
        assert PackedWeight(32, 2048, format).data.size == 32 * 2048 * bits / 8, format
