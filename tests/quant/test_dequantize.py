"""Dequantization against the gguf package on whole tensors, torch for half and bfloat16, and a bound on memory."""

from __future__ import annotations

import tracemalloc

import gguf
import numpy as np
import pytest
import torch

from octavo.quant.dequantize import CHUNK_ELEMENTS, dequantize
from octavo.quant.formats import FORMATS, GGML_FORMATS, Format
from octavo.quant.raw import RawWeight

BLOCK_FORMATS = sorted(name for name, form in FORMATS.items() if not form.plain)


def stored(name: str, shape: tuple[int, ...], seed: int = 0) -> RawWeight:
    """Random bytes; blocks whose scales happen to spell infinity or NaN are drawn again."""
    form = FORMATS[name]
    rows = int(np.prod(shape[:-1]))
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 256, (rows, form.row_bytes(shape[-1])), np.uint8)
    if form.block > 1:
        blocks = data.reshape(-1, form.block_bytes)
        for _ in range(64):
            bad = ~np.isfinite(expected_values(blocks, form)).all(axis=1)
            if not bad.any():
                break
            blocks[bad] = rng.integers(0, 256, (bad.sum(), form.block_bytes), np.uint8)
    return RawWeight.view("w", "test", name, shape, memoryview(data.reshape(-1)))


def expected_values(data: np.ndarray, form: Format) -> np.ndarray:
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(data, gguf.GGMLQuantizationType(form.ggml))


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_equals_the_gguf_package(name: str) -> None:
    raw = stored(name, (37, 2 * 256))
    expected = expected_values(raw.data, FORMATS[name])
    assert np.isfinite(expected).all()
    assert np.unique(expected).size > 2
    values = dequantize(raw)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("name", ["q4_1", "q6_k", "bf16", "f32"])
@pytest.mark.parametrize("shape", [(3, 2 * CHUNK_ELEMENTS + 512), (700, 512), (5, 7, 512), (1024,)])
def test_chunking_does_not_show(name: str, shape: tuple[int, ...]) -> None:
    raw = stored(name, shape) if FORMATS[name].block > 1 else plain(name, shape)
    expected = expected_values(raw.data, FORMATS[name]).reshape(shape)
    np.testing.assert_array_equal(dequantize(raw), expected)


def plain(name: str, shape: tuple[int, ...]) -> RawWeight:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    data = values.to(TORCH_TYPES[name]).contiguous().view(torch.uint8).numpy().reshape(-1)
    return RawWeight.view("w", "test", name, shape, memoryview(data))


TORCH_TYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("name", TORCH_TYPES)
def test_plain_floats_equal_torch(name: str) -> None:
    raw = plain(name, (9, 70))
    expected = torch.from_numpy(raw.data.copy()).view(TORCH_TYPES[name])
    np.testing.assert_array_equal(dequantize(raw), expected.float().numpy())
    np.testing.assert_array_equal(dequantize(raw, np.float64), expected.double().numpy())


def test_every_half_and_bfloat16_value() -> None:
    bits = np.arange(65536, dtype="<u2")
    for name, kind in (("f16", torch.float16), ("bf16", torch.bfloat16)):
        raw = RawWeight.view("w", "test", name, (65536,), memoryview(bits).cast("B"))
        expected = torch.from_numpy(bits.view(np.int16)).view(kind).float().numpy()
        np.testing.assert_array_equal(dequantize(raw), expected)


def test_out_may_be_rows_of_a_larger_array() -> None:
    raw = stored("q8_0", (6, 64))
    merged = np.full((10, 64), np.nan, np.float64)
    assert dequantize(raw, out=merged[2:8]) is not merged
    np.testing.assert_array_equal(merged[2:8], dequantize(raw))
    assert np.isnan(merged[:2]).all()
    assert np.isnan(merged[8:]).all()


def test_out_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"out has shape \(3, 3\)"):
        dequantize(stored("q8_0", (6, 64)), out=np.empty((3, 3)))
    with pytest.raises(ValueError, match="without a copy"):
        dequantize(stored("q8_0", (2, 3, 32)), out=np.empty((3, 2, 32)).swapaxes(0, 1))


@pytest.mark.parametrize("name", ["q4_1", "q6_k", "iq3_s", "bf16", "f16"])
def test_needs_little_beyond_the_result(name: str) -> None:
    shape = (4096, 1024)
    raw = stored(name, (8, 1024)) if FORMATS[name].block > 1 else plain(name, (8, 1024))
    raw = RawWeight("w", "test", name, shape, np.tile(raw.data, (512, 1)))
    out = np.empty(shape, np.float32)
    dequantize(stored("iq3_s", (1, 256)))  # the package's tables are made once, on first use
    tracemalloc.start()
    dequantize(raw, out=out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < out.nbytes / 4


def test_format_table_equals_the_gguf_package() -> None:
    decodable = {kind for kind in gguf.GGMLQuantizationType if kind in gguf.quants._type_traits}
    decodable |= {gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.F64}
    assert set(GGML_FORMATS) == {int(kind) for kind in decodable}
    for kind in decodable:
        form = GGML_FORMATS[int(kind)]
        assert form.name == kind.name.lower()
        sizes = gguf.GGML_QUANT_SIZES[kind]
        assert form.row_bytes(4 * sizes[0]) == 4 * sizes[1]


def test_partial_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="100 elements is no multiple of the q4_0 block of 32"):
        FORMATS["q4_0"].row_bytes(100)
