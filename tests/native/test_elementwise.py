"""Norm, add, activations, rope, gate and gather against float64 arithmetic; fused ops bit for bit."""

from itertools import pairwise

import numpy as np
import pytest
from native_ops import NativeTeam, step_of, strided, view

from octavo.ops.native.abi import DRAWS, TOKENS, OpKind, View

WIDTHS = [1, 15, 16, 31, 32, 33, 48, 64, 65, 100, 576, 1536, 5000]
ROWS = 9  # of some widths several chunks


def values(rows: int, columns: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, scale, (rows, columns)).astype(np.float32)


def padded(columns: int, extra: int = 0) -> int:
    return -(-columns // 32) * 32 + extra


def silu(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x / (1 + np.exp(-x.astype(np.float64)))


class Activations:
    """Quantised rows in a guarded buffer, and their parts by the layout of activation.h."""

    def __init__(self, rows: int, padded_columns: int) -> None:
        groups = padded_columns // 32
        used = padded_columns + groups * 12 + groups * 2 * 4
        self.stride = -(-used // 64) * 64
        self.buffer = np.full((rows + 1, self.stride), 0xA5, np.uint8)  # the last row is the guard
        offset = np.cumsum([0, padded_columns, groups * 4, groups * 4, groups * 4, groups * 8])
        self.parts = [self.buffer[:rows, start:end] for start, end in pairwise(offset)]
        self.view = View(self.buffer.ctypes.data, self.stride, padded_columns, 0)

    def part(self, index: int, dtype: type) -> np.ndarray:
        return np.ascontiguousarray(self.parts[index]).view(dtype)

    @property
    def code(self) -> np.ndarray:
        return self.part(0, np.int8)

    @property
    def scale(self) -> np.ndarray:
        return self.part(1, np.float32)

    def bits(self) -> bytes:
        return b"".join(np.ascontiguousarray(part).tobytes() for part in self.parts)


@pytest.mark.parametrize("columns", WIDTHS)
def test_rms_norm(team: NativeTeam, columns: int) -> None:
    x, weight = values(ROWS, columns), values(1, columns, 1)[0]
    out, whole = strided(ROWS, columns, 7)
    team.run(OpKind.RMS_NORM, x=x, vector=weight, number=1e-5, out=out, step=step_of(ROWS))
    exact = x.astype(np.float64)
    exact = exact / np.sqrt((exact**2).mean(axis=1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(out, exact, rtol=2e-6)
    assert (whole[:, columns:].view(np.uint8) == 0xA5).all()


@pytest.mark.parametrize(("heads", "head_dim"), [(3, 64), (9, 64), (2, 80), (5, 24), (1, 128)])
def test_rms_norm_of_heads_in_place(team: NativeTeam, heads: int, head_dim: int) -> None:
    x, weight = values(ROWS, heads * head_dim), values(1, head_dim, 1)[0]
    exact = x.astype(np.float64).reshape(ROWS, heads, head_dim)
    exact = exact / np.sqrt((exact**2).mean(axis=2, keepdims=True) + 1e-6) * weight
    team.run(OpKind.RMS_NORM, x=view(x, heads), vector=weight, number=1e-6, out=view(x, heads), step=step_of(ROWS))
    np.testing.assert_allclose(x.reshape(exact.shape), exact, rtol=2e-6)


@pytest.mark.parametrize("columns", WIDTHS)
def test_add(team: NativeTeam, columns: int) -> None:
    x, y = values(ROWS, columns), values(ROWS, columns, 1)
    expected = x + y
    team.run(OpKind.ADD, x=x, y=y, out=x, step=step_of(ROWS))
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("extra", [0, 64])
def test_quantize(team: NativeTeam, columns: int, extra: int) -> None:
    x = values(ROWS, columns, scale=3.0)
    x[1] = 0
    x[2, ::2] *= 1e-30
    width = padded(columns, extra)
    out = Activations(ROWS, width)
    team.run(OpKind.QUANTIZE, x=x, out=out.view, extra=width, step=step_of(ROWS))
    groups = np.pad(x, ((0, 0), (0, width - columns))).reshape(ROWS, -1, 32)
    largest = np.abs(groups).max(axis=2)
    np.testing.assert_allclose(out.scale, largest / 127, rtol=1e-7)
    code = out.code.reshape(groups.shape).astype(np.int32)
    assert np.abs(code).max() <= 127
    assert (np.abs(code).max(axis=2) == np.where(largest > 0, 127, 0)).all()
    error = np.abs(code * out.scale[..., None].astype(np.float64) - groups)
    assert (error <= out.scale[..., None] * 0.50001).all()
    np.testing.assert_array_equal(out.part(2, np.float32), out.scale * code.sum(axis=2).astype(np.float32))
    np.testing.assert_array_equal(out.part(3, np.int32), -code.sum(axis=2))
    np.testing.assert_array_equal(out.part(4, np.int32), -code.reshape(ROWS, -1, 16).sum(axis=2))
    assert (out.buffer[ROWS] == 0xA5).all()


def test_quantize_rounds_to_even(team: NativeTeam) -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, :9] = [127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, -126.5, 0.49999997]
    out = Activations(1, 32)
    team.run(OpKind.QUANTIZE, x=x, out=out.view, extra=32, step=step_of(1))
    assert out.code[0, :9].tolist() == [127, 0, 2, 2, 0, -2, -2, -126, 0]


@pytest.mark.parametrize("broken", [np.nan, -np.nan, np.inf, -np.inf])
def test_quantize_of_broken_values(team: NativeTeam, broken: float) -> None:
    """A group with NaN or infinity has a scale and sums that say so; its neighbours are as ever."""
    x = values(3, 128)
    clean, dirty = Activations(3, 128), Activations(3, 128)
    team.run(OpKind.QUANTIZE, x=x, out=clean.view, extra=128, step=step_of(3))
    x[1, 70] = broken
    team.run(OpKind.QUANTIZE, x=x, out=dirty.view, extra=128, step=step_of(3))
    assert not np.isfinite(dirty.scale[1, 2])
    assert np.isnan(dirty.part(2, np.float32)[1, 2])
    same = np.ones((3, 4), bool)
    same[1, 2] = False
    np.testing.assert_array_equal(dirty.scale[same], clean.scale[same])
    np.testing.assert_array_equal(dirty.code.reshape(3, 4, 32)[same], clean.code.reshape(3, 4, 32)[same])


@pytest.mark.parametrize("largest", [1e-45, 1e-38, 1e-31, 1e-29, 3e38])
def test_quantize_at_the_ends_of_float32(team: NativeTeam, largest: float) -> None:
    x = np.full((1, 32), largest, np.float32)
    out = Activations(1, 32)
    team.run(OpKind.QUANTIZE, x=x, out=out.view, extra=32, step=step_of(1))
    if largest < 2.0**-100:
        assert (out.code == 0).all()
        assert out.scale[0, 0] == 0
    else:
        assert (out.code == 127).all()


@pytest.mark.parametrize("columns", WIDTHS)
def test_narrow(team: NativeTeam, columns: int) -> None:
    import ml_dtypes

    x = values(ROWS, columns, scale=100.0)
    x[0, 0], x[1, 0] = np.nan, np.inf
    width = padded(columns, 32)
    out, whole = strided(ROWS, width, 5, np.uint16)
    team.run(OpKind.NARROW, x=x, out=out, extra=width, step=step_of(ROWS))
    expected = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(out[:, :columns].astype(np.uint32) << 16, expected.view(np.uint32))
    assert (out[:, columns:] == 0).all()
    assert (whole[:, width:] == 0xA5A5).all()


@pytest.mark.parametrize(
    ("heads", "head_dim", "pairs"), [(9, 64, 32), (3, 80, 40), (4, 64, 16), (2, 24, 12), (5, 8, 3)]
)
def test_rope(team: NativeTeam, heads: int, head_dim: int, pairs: int) -> None:
    x = values(ROWS, heads * head_dim)
    angle = values(50, pairs, 2)
    cos_sin = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    position = np.random.default_rng(3).integers(0, 50, ROWS).astype(np.int32)
    expected = x.reshape(ROWS, heads, head_dim).copy()
    first, second = expected[..., :pairs].copy(), expected[..., pairs : 2 * pairs].copy()
    cos, sin = cos_sin[position, 0][:, None], cos_sin[position, 1][:, None]
    expected[..., :pairs] = first * cos - second * sin
    expected[..., pairs : 2 * pairs] = second * cos + first * sin
    team.run(OpKind.ROPE, x=view(x, heads), vector=cos_sin, extra=pairs, step=step_of(ROWS, position_T=position))
    np.testing.assert_array_equal(x, expected.reshape(x.shape))


@pytest.mark.parametrize("columns", WIDTHS)
def test_silu_mul(team: NativeTeam, columns: int) -> None:
    x = values(ROWS, 2 * columns, scale=8.0)
    x[0, 0], x[1, 0], x[2, 0], x[3, 0] = -200.0, 200.0, -3e38, 0.0
    out, whole = strided(ROWS, columns, 3)
    team.run(OpKind.SILU_MUL, x=x, out=out, step=step_of(ROWS))
    np.testing.assert_allclose(out, silu(x[:, :columns]) * x[:, columns:], rtol=6e-7, atol=1e-35)
    assert (whole[:, columns:].view(np.uint8) == 0xA5).all()


def test_silu_mul_passes_nan_on(team: NativeTeam) -> None:
    x = values(2, 64)
    x[0, 3] = np.nan
    out = np.empty((2, 32), np.float32)
    team.run(OpKind.SILU_MUL, x=x, out=out, step=step_of(2))
    assert np.isnan(out[0, 3])
    assert np.isnan(out).sum() == 1


def test_silu_over_all_magnitudes(team: NativeTeam) -> None:
    """exp within its two units: gates from -86 to 89, and the last places before it over- and underflows."""
    gate = np.concatenate([np.linspace(-86.8, 89, 200_001), np.geomspace(1e-30, 1, 5001)]).astype(np.float32)[None]
    out = np.empty_like(gate)
    team.run(OpKind.SILU_MUL, x=np.concatenate([gate, np.ones_like(gate)], 1), out=out, step=step_of(1))
    np.testing.assert_allclose(out, silu(gate), rtol=4e-7)


def test_gather(team: NativeTeam) -> None:
    x = values(20, 33)
    index = np.array([19, 0, 7, 7, 3], np.int32)
    out = np.empty((5, 33), np.float32)
    team.run(OpKind.GATHER, rows=DRAWS, x=x, out=out, step=step_of(20, logit_S=index))
    np.testing.assert_array_equal(out, x[index])


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("narrow", [False, True], ids=["quantize", "narrow"])
@pytest.mark.parametrize("gate", [False, True], ids=["norm", "silu"])
def test_fused_ops_equal_their_sequence(team: NativeTeam, columns: int, narrow: bool, gate: bool) -> None:
    x = values(ROWS, columns * (2 if gate else 1), scale=2.0)
    weight, middle, width = values(1, columns, 1)[0], np.empty((ROWS, columns), np.float32), padded(columns)
    first = OpKind.SILU_MUL if gate else OpKind.RMS_NORM
    second = OpKind.NARROW if narrow else OpKind.QUANTIZE
    fused = OpKind[f"{'SILU' if gate else 'NORM'}_{second.name}"]
    results = [np.zeros((ROWS, width), np.uint16) if narrow else Activations(ROWS, width) for _ in range(2)]
    outs = results if narrow else [result.view for result in results]
    step = step_of(ROWS)
    team.run(first, x=x, vector=weight, number=1e-5, out=middle, step=step)
    team.run(second, x=middle, out=outs[0], extra=width, step=step)
    team.run(fused, x=x, vector=weight, number=1e-5, out=outs[1], extra=width, step=step)
    bits = [result.tobytes() if narrow else result.bits() for result in results]
    assert bits[0] == bits[1]


@pytest.mark.parametrize("kind", [OpKind.RMS_NORM, OpKind.SILU_MUL, OpKind.NORM_QUANTIZE, OpKind.SILU_NARROW], ids=str)
def test_a_row_does_not_depend_on_the_others(team: NativeTeam, kind: OpKind) -> None:
    """Alone, and among 50 rows that make several tasks: the same bits."""
    columns, rows = 576, 50
    gate = kind in (OpKind.SILU_MUL, OpKind.SILU_NARROW)
    x, weight = values(rows, columns * 2 if gate else columns), values(1, columns, 1)[0]

    def run(x: np.ndarray, count: int) -> np.ndarray:
        bytes_each = 4 * columns
        out = np.zeros((count, bytes_each), np.uint8)
        stride = bytes_each if kind == OpKind.NORM_QUANTIZE else bytes_each // (2 if kind == OpKind.SILU_NARROW else 4)
        out_view = View(out.ctypes.data, stride, columns, 0)
        team.run(kind, rows=count, x=x, vector=weight, number=1e-5, out=out_view, extra=columns)
        return out

    together = run(x, rows)
    for t in (0, 7, 8, 49):
        np.testing.assert_array_equal(run(x[t : t + 1], 1)[0], together[t])


@pytest.mark.parametrize("kind", [OpKind.RMS_NORM, OpKind.QUANTIZE, OpKind.GATHER, OpKind.SILU_NARROW], ids=str)
def test_no_rows_are_no_work(team: NativeTeam, kind: OpKind) -> None:
    out = np.full((1, 64), 0xA5A5A5A5, np.uint32)
    x = values(1, 64)
    team.run(kind, rows=TOKENS, x=x, vector=x, out=out, extra=64, step=step_of(0))
    assert (out == 0xA5A5A5A5).all()
