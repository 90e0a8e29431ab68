"""Rounding float32 rows to 8 and 4 bits: error bounds, the gguf package's rounding, and a dense search in float64."""

import zlib

import gguf
import numpy as np
import pytest
from native_ops import NativeTeam
from packed_weights import GUARD, ROUND_TO_4, ROUND_TO_8, PackedWeight

TARGETS = [ROUND_TO_8, ROUND_TO_4]
ROUNDING = 2**-11  # relative, of a scale to float16, at most


def rounded(rows_RI: np.ndarray, packing: dict[str, int]) -> PackedWeight:
    weight = PackedWeight(*rows_RI.shape, **packing)
    assert weight.quantize(rows_RI) == 0
    assert (weight.guard == GUARD).all()
    return weight


def normal(rows: int, columns: int, scale: float = 0.02) -> np.ndarray:
    return np.random.default_rng(0).normal(0, scale, (rows, columns)).astype(np.float32)


def heavy_tailed(rows: int, columns: int) -> np.ndarray:
    return (np.random.default_rng(0).standard_t(3, (rows, columns)) * 0.02).astype(np.float32)


def square_error(values: np.ndarray, rows_RI: np.ndarray) -> np.ndarray:
    """Of each block of 32, in float64."""
    return np.square(values.astype(np.float64) - rows_RI).reshape(-1, 32).sum(axis=1)


def of_gguf(rows_RI: np.ndarray, kind: gguf.GGMLQuantizationType) -> np.ndarray:
    return gguf.quants.dequantize(gguf.quants.quantize(rows_RI, kind), kind)


@pytest.mark.parametrize("scale", [1e-6, 1e-4, 0.02, 1.0, 3e4])
def test_8_bits_are_within_half_a_step(team: NativeTeam, scale: float) -> None:
    """A step is largest / 127, and the rounding of that to float16, whose own steps are 2^-24 among the smallest."""
    rows_RI = normal(33, 576, scale).clip(-60000, 60000)
    values = rounded(rows_RI, ROUND_TO_8).unpack(team)
    step = np.abs(rows_RI).reshape(-1, 32).max(axis=1, keepdims=True).astype(np.float64) / 127
    step = np.repeat(step * (1 + ROUNDING) + 2**-24, 32, axis=1).reshape(33, 576)
    assert (np.abs(values.astype(np.float64) - rows_RI) <= step / 2 * (1 + 1e-5)).all()


def test_8_bits_are_as_good_as_q8_0(team: NativeTeam) -> None:
    for rows_RI in (normal(64, 1024), heavy_tailed(64, 1024)):
        error = square_error(rounded(rows_RI, ROUND_TO_8).unpack(team), rows_RI).sum()
        assert error < 1.01 * square_error(of_gguf(rows_RI, gguf.GGMLQuantizationType.Q8_0), rows_RI).sum()


def test_4_bits_are_better_than_the_plain_range(team: NativeTeam) -> None:
    """Q4_1 of the gguf package lays its 15 steps over the range of the block."""
    for rows_RI, share in ((normal(64, 1024), 0.83), (heavy_tailed(64, 1024), 0.87)):
        error = square_error(rounded(rows_RI, ROUND_TO_4).unpack(team), rows_RI)
        plain = square_error(of_gguf(rows_RI, gguf.GGMLQuantizationType.Q4_1), rows_RI)
        assert error.sum() < share * plain.sum()
        assert (error <= plain * 1.01).all()


def test_4_bits_come_close_to_a_dense_search(team: NativeTeam) -> None:
    rows_RI = normal(16, 64)
    error = square_error(rounded(rows_RI, ROUND_TO_4).unpack(team), rows_RI)
    x = rows_RI.reshape(-1, 1, 1, 32).astype(np.float64)
    low, high = x.min(axis=-1, keepdims=True), x.max(axis=-1, keepdims=True)
    span = high - low
    low = low + span * np.linspace(-0.05, 0.15, 41)[:, None, None]
    scale = (high - span * np.linspace(-0.05, 0.15, 41)[:, None] - low) / 15
    best = np.square(scale * ((x - low) / scale).round().clip(0, 15) + low - x).sum(axis=-1).min(axis=(1, 2))
    assert best.shape == error.shape
    assert error.sum() < 1.12 * best.sum()


@pytest.mark.parametrize("packing", TARGETS)
@pytest.mark.parametrize("value", [0.0, 1.0, -0.37, 6e4, 1e-7])
def test_constant_rows(team: NativeTeam, packing: dict[str, int], value: float) -> None:
    rows_RI = np.full((16, 64), value, np.float32)
    values = rounded(rows_RI, packing).unpack(team)
    np.testing.assert_allclose(values, rows_RI, rtol=ROUNDING * 1.01, atol=2**-25)


def test_two_values_are_kept(team: NativeTeam) -> None:
    rows_RI = np.where(np.random.default_rng(0).random((16, 64)) < 0.3, -0.25, 0.5).astype(np.float32)
    np.testing.assert_allclose(rounded(rows_RI, ROUND_TO_4).unpack(team), rows_RI, atol=2e-4)


@pytest.mark.parametrize("packing", TARGETS)
@pytest.mark.parametrize("columns", [1, 31, 40])
def test_widths_that_are_no_multiple_of_32(team: NativeTeam, packing: dict[str, int], columns: int) -> None:
    rows_RI = normal(17, columns)
    weight = rounded(rows_RI, packing)
    values = weight.unpack(team)
    assert np.abs(values - rows_RI).max() < 0.08 * np.abs(rows_RI).max()  # half of a fifteenth of the range
    whole = weight.unpack(team, padding=True)
    assert not whole[17:].any()
    if not weight.struct.has_min:  # with a min, zero need not be on the grid; activations are zero there
        assert not whole[:, columns:].any()


@pytest.mark.parametrize("packing", TARGETS)
def test_a_row_does_not_depend_on_its_neighbours(team: NativeTeam, packing: dict[str, int]) -> None:
    rows_RI = heavy_tailed(33, 96)
    together = rounded(rows_RI, packing).unpack(team)
    for r in (0, 7, 32):
        np.testing.assert_array_equal(rounded(rows_RI[r : r + 1].copy(), packing).unpack(team)[0], together[r])


@pytest.mark.parametrize("packing", TARGETS)
def test_panels_may_be_rounded_one_by_one(packing: dict[str, int]) -> None:
    rows_RI = normal(40, 96)
    whole, parts = rounded(rows_RI, packing), PackedWeight(40, 96, **packing)
    for first, end in ((32, 40), (0, 16), (16, 32)):
        assert parts.quantize(rows_RI[first:end].copy(), first) == 0
    np.testing.assert_array_equal(parts.data, whole.data)


@pytest.mark.parametrize("packing", TARGETS)
def test_numbers_that_are_none_stay_in_their_block(team: NativeTeam, packing: dict[str, int]) -> None:
    rows_RI = normal(16, 96)
    sound = rounded(rows_RI, packing).unpack(team)
    rows_RI[3, 40], rows_RI[4, 41], rows_RI[5, 42] = np.nan, np.inf, -np.inf
    rows_RI[6, 32:64], rows_RI[7, 32:64] = np.nan, np.finfo(np.float32).max
    values = rounded(rows_RI, packing).unpack(team)
    assert np.isfinite(values).all()
    np.testing.assert_array_equal(values[:3], sound[:3])
    np.testing.assert_array_equal(values[:, :32], sound[:, :32])
    np.testing.assert_array_equal(values[:, 64:], sound[:, 64:])


@pytest.mark.parametrize(
    "change", [{"bits": 5}, {"group": 16}, {"zero": 8}, {"has_lut": 1}, {"has_min": 1}, {"kind": 1}, {"bits": 4}]
)
def test_other_packings_are_refused(change: dict[str, int]) -> None:
    weight = PackedWeight(16, 64, **(ROUND_TO_8 | change))
    assert weight.quantize(normal(16, 64)) == -1
    assert (weight.data == 0xFF).all()


def test_rows_that_do_not_fit() -> None:
    weight = PackedWeight(40, 64, **ROUND_TO_8)
    for rows, first in ((41, 0), (16, 8), (9, 32), (17, 0), (16, -16)):
        assert weight.quantize(normal(rows, 64), first) == -1
    assert (weight.data == 0xFF).all()


def test_the_same_bytes_on_every_machine() -> None:
    """Digests made once with each ISA level; whoever reads this has one of them, or another compiler."""
    rows_RI = ((np.arange(48 * 160) * 7919 % 10007).reshape(48, 160) / 10007 - 0.4).astype(np.float32) ** 3
    digests = [zlib.crc32(rounded(rows_RI, packing).data) for packing in TARGETS]
    assert digests == [1523804148, 679687762]
