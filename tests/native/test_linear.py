"""LINEAR against float64 on the same codes: every packed form, odd shapes, bias, residual, strides; and every row is
bit for bit the same in any company, tile and number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from native_ops import ISA_LEVELS, NativeTeam, native_team, runs_here, strided
from panels import Panels, bf16_rows, int8_rows, random_codes, random_dense

from octavo.ops.native.abi import KIND_BF16, KIND_CODES, KIND_F16, KIND_F32, OpKind

TOKENS = (1, 2, 3, 4, 5, 7, 8, 16, 17, 23, 64, 127, 512)
ZEROS = {4: 8, 5: 16, 8: 128}
Form = tuple[int, int, bool, int, bool]
FORMS: list[Form] = [  # bits, group, has_min, zero, lut
    (bits, group, has_min, 0 if has_min or not centred else ZEROS[bits], lut)
    for bits in (4, 5, 8)
    for group in (16, 32)
    for lut in ((False, True) if bits == 4 else (False,))
    for has_min, centred in ((True, False), (False, True), (False, False))
]
LUT_ZERO = 128  # values of a table are unsigned bytes
PLAIN_KINDS = (KIND_BF16, KIND_F16, KIND_F32)


def inputs(weight: Panels, tokens: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Activation rows as the weight's kind wants them, and the numbers they stand for."""
    columns = weight.struct.columns
    if weight.struct.kind == KIND_CODES:
        return int8_rows(tokens, columns, seed)
    if weight.struct.kind == KIND_BF16:
        return bf16_rows(tokens, columns, seed)
    x_TI = np.random.default_rng(seed).standard_normal((tokens, columns)).astype(np.float32)
    return x_TI, x_TI.astype(np.float64)


def run(team: NativeTeam, weight: Panels, x: np.ndarray, **fields: object) -> np.ndarray:
    out_TO, whole = strided(len(x), weight.struct.rows, gap=5)
    team.run(OpKind.LINEAR, rows=len(x), x=x, out=out_TO, weight=weight.pointer, **fields)
    assert np.all(whole[:, weight.struct.rows :].view(np.uint8) == 0xA5), "wrote beside its columns"
    return out_TO


def check(out_TO: np.ndarray, value_TI: np.ndarray, weight: Panels, added_TO: np.ndarray | float = 0.0) -> None:
    """Within 1e-5 of what the row's terms amount to."""
    expected_TO = value_TI @ weight.dense_OI.T + added_TO
    magnitude_TO = np.abs(value_TI) @ np.abs(weight.dense_OI.T) + np.abs(added_TO)
    assert np.max(np.abs(out_TO - expected_TO) / magnitude_TO) < 1e-5


@pytest.mark.parametrize(("bits", "group", "has_min", "zero", "lut"), FORMS)
def test_every_form_of_codes(team: NativeTeam, bits: int, group: int, has_min: bool, zero: int, lut: bool) -> None:
    weight = random_codes(33, 96, bits, group, has_min, LUT_ZERO if lut and zero else zero, lut)
    for tokens in TOKENS[:10]:
        x, value_TI = inputs(weight, tokens)
        check(run(team, weight, x), value_TI, weight)


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("columns", [32, 64, 96, 576, 100])
def test_codes_of_odd_shapes(team: NativeTeam, tokens: int, columns: int) -> None:
    for rows in (1, 15, 17, 33, 100):
        weight = random_codes(rows, columns, 4, 32, True, 0, False)
        x, value_TI = inputs(weight, tokens)
        check(run(team, weight, x), value_TI, weight)


@pytest.mark.parametrize("kind", PLAIN_KINDS)
@pytest.mark.parametrize("columns", [1, 7, 32, 33, 100, 576])
def test_plain_numbers(team: NativeTeam, kind: int, columns: int) -> None:
    for rows, tokens in zip((1, 15, 17, 33, 100) * 3, TOKENS, strict=False):
        weight = random_dense(kind, rows, columns)
        x, value_TI = inputs(weight, tokens)
        check(run(team, weight, x), value_TI, weight)


@pytest.mark.parametrize("kind", [KIND_CODES, *PLAIN_KINDS])
@pytest.mark.parametrize("in_place", [False, True])
def test_bias_and_residual(team: NativeTeam, kind: int, in_place: bool) -> None:
    weight = weight_of(kind)
    rng = np.random.default_rng(1)
    for tokens in (1, 3, 23, 70):
        x, value_TI = inputs(weight, tokens)
        bias_O = rng.standard_normal(weight.struct.rows).astype(np.float32)
        residual_TO, _ = strided(tokens, weight.struct.rows, gap=3)
        residual_TO[:] = rng.standard_normal(residual_TO.shape)
        expected = bias_O.astype(np.float64) + residual_TO
        out_TO = residual_TO
        if in_place:
            team.run(OpKind.LINEAR, tokens, x=x, y=out_TO, out=out_TO, weight=weight.pointer, vector=bias_O)
        else:
            out_TO = run(team, weight, x, y=residual_TO, vector=bias_O)
        check(out_TO, value_TI, weight, expected)


def weight_of(kind: int, form: Form = (4, 32, True, 0, False)) -> Panels:
    return random_codes(200, 96, *form) if kind == KIND_CODES else random_dense(kind, 200, 96)


@pytest.fixture(scope="module", params=ISA_LEVELS)
def teams(request: pytest.FixtureRequest) -> Iterator[list[NativeTeam]]:
    """Teams of 1 to 4 threads."""
    if not runs_here(request.param):
        pytest.skip(f"this CPU has no {request.param}")
    with (
        native_team(request.param, 1) as one,
        native_team(request.param, 2) as two,
        native_team(request.param, 3) as three,
        native_team(request.param, 4) as four,
    ):
        yield [one, two, three, four]


@pytest.mark.parametrize("form", [*FORMS, *PLAIN_KINDS], ids=str)
def test_a_row_is_the_same_in_any_company(teams: list[NativeTeam], form: Form | int) -> None:
    weight = weight_of(form) if isinstance(form, int) else weight_of(KIND_CODES, form)
    x, _ = inputs(weight, 130)
    alone_TO = np.concatenate([run(teams[0], weight, x[t : t + 1]) for t in range(len(x))])
    for count, team in enumerate(teams):
        for tokens in (*range(1, 18), 23, 31, 64, 65, 67, 127, 130):
            first = (7 * count + tokens) % (131 - tokens)
            out_TO = run(team, weight, x[first : first + tokens])
            assert out_TO.tobytes() == alone_TO[first : first + tokens].tobytes(), f"{tokens} tokens from {first}"


def test_no_tokens(team: NativeTeam) -> None:
    weight = weight_of(KIND_CODES)
    x, _ = inputs(weight, 1)
    out_TO, whole = strided(1, weight.struct.rows, gap=0)
    team.run(OpKind.LINEAR, rows=0, x=x, out=out_TO, weight=weight.pointer)
    assert np.all(whole.view(np.uint8) == 0xA5)


def test_nan_and_infinity_stay_in_their_row(team: NativeTeam) -> None:
    weight = random_dense(KIND_F32, 40, 64)
    x_TI, _ = inputs(weight, 9)
    clean_TO = run(team, weight, x_TI)
    x_TI[4, 3], x_TI[6, 5] = np.nan, np.inf
    out_TO = run(team, weight, x_TI)
    assert np.isnan(out_TO[4]).all()
    assert not np.isfinite(out_TO[6]).any()
    others = [0, 1, 2, 3, 5, 7, 8]
    assert out_TO[others].tobytes() == clean_TO[others].tobytes()
