"""What the sampler is told: only the options that some draw of the step uses, each for the right draw."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.ops.backend import Samples
from octavo.runner.sampling import SamplingState, token_logprobs
from octavo.types import SamplingParams, TokenLogprob

ROWS = 8
OPTIONAL = ("top_k_S", "top_p_S", "min_p_S", "repetition_S", "presence_S", "frequency_S", "history", "logprobs_S")


def _history(row: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array([row]), np.array([row, row])


def test_greedy_draws_carry_nothing_else() -> None:
    state = SamplingState(ROWS)
    for row in range(ROWS):
        state.admit(row, SamplingParams(temperature=0.0), seed=row * 11, choice=row)
    batch = state.batch(np.array([6, 2]), np.array([100, 7]), _history)
    assert batch.temperature_S.tolist() == [0.0, 0.0]
    assert batch.seed_S.tolist() == [66, 22]
    assert batch.choice_S.tolist() == [6, 2]
    assert batch.position_S.tolist() == [100, 7]
    assert all(getattr(batch, name) is None for name in OPTIONAL)


@pytest.mark.parametrize(
    ("params", "field", "value", "off"),
    [
        (SamplingParams(top_k=5), "top_k_S", 5, 0),
        (SamplingParams(top_p=0.5), "top_p_S", 0.5, 1),
        (SamplingParams(min_p=0.25), "min_p_S", 0.25, 0),
        (SamplingParams(repetition_penalty=1.5), "repetition_S", 1.5, 1),
        (SamplingParams(presence_penalty=-0.5), "presence_S", -0.5, 0),
        (SamplingParams(frequency_penalty=0.5), "frequency_S", 0.5, 0),
        (SamplingParams(logprobs=0), "logprobs_S", 0, -1),
        (SamplingParams(logprobs=4), "logprobs_S", 4, -1),
    ],
)
def test_one_option_of_one_draw(params: SamplingParams, field: str, value: float, off: float) -> None:
    state = SamplingState(ROWS)
    state.admit(1, SamplingParams(), seed=0, choice=0)
    state.admit(4, params, seed=0, choice=0)
    batch = state.batch(np.array([1, 4]), np.array([3, 3]), _history)
    assert getattr(batch, field).tolist() == [off, value]
    penalised = "penalty" in " ".join(params.__struct_fields__) and field in (
        "repetition_S",
        "presence_S",
        "frequency_S",
    )
    if penalised:
        assert batch.history is not None
        [(draw, prompt, output)] = batch.history
        assert (draw, prompt.tolist(), output.tolist()) == (1, [4], [4, 4])
    others = set(OPTIONAL) - {field} - ({"history"} if penalised else set())
    assert all(getattr(batch, name) is None for name in others)
    assert state.batch(np.array([1]), np.array([3]), _history).history is None


def test_a_row_forgets_its_last_user() -> None:
    state = SamplingState(ROWS)
    state.admit(0, SamplingParams(top_k=5, frequency_penalty=1.0, logprobs=2), seed=1, choice=2)
    state.admit(0, SamplingParams(temperature=0.0), seed=3, choice=0)
    batch = state.batch(np.array([0]), np.array([1]), _history)
    assert all(getattr(batch, name) is None for name in OPTIONAL)
    assert (batch.seed_S.tolist(), batch.choice_S.tolist()) == ([3], [0])


def test_seeds_keep_all_their_bits() -> None:
    state = SamplingState(ROWS)
    for row, seed in enumerate((-(2**63), 2**63 - 1, 2**53 + 1)):
        state.admit(row, SamplingParams(), seed=seed, choice=0)
    batch = state.batch(np.array([0, 1, 2]), np.zeros(3, np.int64), _history)
    assert batch.seed_S.tolist() == [-(2**63), 2**63 - 1, 2**53 + 1]


def test_reports_become_plain_numbers() -> None:
    samples = Samples(np.array([7, 8]), [None, (-0.5, np.array([8, 1]), np.array([-0.5, -2.0]))])
    assert token_logprobs(samples, [7, 8]) == [None, TokenLogprob(8, -0.5, [(8, -0.5), (1, -2.0)])]
    assert token_logprobs(Samples(np.array([7])), [7]) is None
