"""EMBED: any tokens in any order, of every kind of matrix, each row by itself and the same on every ISA level."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
from native_ops import ISA_LEVELS, NativeTeam, native_team, runs_here, step_of, strided
from packed_weights import PLAIN, SCALE_BYTES, PackedWeight, blocks, expected, plain_rows

from octavo.checkpoint.gguf import GGUFSource
from octavo.ops.native.abi import OpKind
from octavo.quant.raw import RawWeight

FORMATS_OF_EVERY_KIND = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q6_k", "iq4_xs", *PLAIN]


def matrix(format: str, rows: int, columns: int) -> tuple[PackedWeight, np.ndarray]:
    raw = plain_rows(format, rows, columns) if format in PLAIN else blocks(format, rows, columns)
    weight = PackedWeight(rows, columns, format)
    assert weight.pack(raw) == 0
    return weight, expected(raw, format)


def embed(team: NativeTeam, weight: PackedWeight, token_T: np.ndarray, out_TD: np.ndarray, number: float = 1.0) -> None:
    step = step_of(len(token_T), token_T=token_T)
    team.run(OpKind.EMBED, step=step, weight=ctypes.pointer(weight.struct), out=out_TD, number=number)


@pytest.mark.parametrize("format", [*SCALE_BYTES, *PLAIN])
def test_rows_of_tokens(team: NativeTeam, format: str) -> None:
    weight, values = matrix(format, 100, 512)
    token_T = np.array([99, 0, 15, 16, 17, 99, 42, 42], np.int32)
    out_TD, whole = strided(len(token_T), 512, gap=3)
    embed(team, weight, token_T, out_TD)
    np.testing.assert_allclose(out_TD, values[token_T], rtol=0, atol=3 * 2**-11 * np.abs(values).max())
    assert (whole[:, 512:].copy().view(np.uint8) == 0xA5).all()


def test_times_a_number(team: NativeTeam) -> None:
    weight, values = matrix("q8_0", 32, 96)
    out_TD = np.empty((2, 96), np.float32)
    embed(team, weight, np.array([3, 30], np.int32), out_TD, number=7.5)
    np.testing.assert_array_equal(out_TD, values[[3, 30]] * np.float32(7.5))


@pytest.mark.parametrize("columns", [1, 33, 47])
@pytest.mark.parametrize("format", PLAIN)
def test_odd_widths_write_nothing_beyond(team: NativeTeam, format: str, columns: int) -> None:
    weight, values = matrix(format, 20, columns)
    out_TD, whole = strided(2, columns, gap=5)
    embed(team, weight, np.array([19, 1], np.int32), out_TD)
    np.testing.assert_array_equal(out_TD, values[[19, 1]])
    assert (whole[:, columns:].copy().view(np.uint8) == 0xA5).all()


@pytest.mark.parametrize("format", FORMATS_OF_EVERY_KIND)
def test_every_isa_level_gives_the_same_bits(format: str) -> None:
    weight, _ = matrix(format, 64, 768)
    token_T = np.random.default_rng(0).integers(0, 64, 300, dtype=np.int32)
    results = []
    for isa in filter(runs_here, ISA_LEVELS):
        with native_team(isa) as team:
            together, alone = np.empty((2, 300, 768), np.float32)
            embed(team, weight, token_T, together)
            for t in range(300):
                embed(team, weight, token_T[t : t + 1], alone[t : t + 1])
        results += [together.tobytes(), alone.tobytes()]
    assert len(set(results)) == 1


def test_no_tokens(team: NativeTeam) -> None:
    weight, _ = matrix("q4_0", 16, 32)
    out_TD = np.full((1, 32), 5, np.float32)
    embed(team, weight, np.empty(0, np.int32), out_TD)
    assert (out_TD == 5).all()


def test_the_default_model(team: NativeTeam, smollm2_path: Path) -> None:
    """49152 rows of Q8_0; the special tokens come first."""
    raw: RawWeight = GGUFSource(smollm2_path).tensor("model.embed_tokens.weight")
    weight = PackedWeight(*raw.shape, raw.format)
    assert weight.pack(raw.data) == 0
    token_T = np.array([0, 1, 2, 28, 260, 9906, 49151], np.int32)
    out_TD = np.empty((len(token_T), raw.shape[1]), np.float32)
    embed(team, weight, token_T, out_TD)
    np.testing.assert_array_equal(out_TD, expected(raw.data[token_T], raw.format))
