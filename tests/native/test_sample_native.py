"""The native sampler draws the reference's tokens: random batches of every kind over large vocabularies, at every ISA
level, and with logits, histories and settings at the edges. Distributions are tested in tests/ops/test_sample.py.
"""

import numpy as np
import pytest
from native_ops import NativeTeam

from octavo.ops.backend import SampleBatch, Samples
from octavo.ops.native.sample import NativeSampler
from octavo.ops.reference.sample import draw_samples as reference

OPTIONS = ("top_k_S", "top_p_S", "min_p_S", "repetition_S", "presence_S", "frequency_S", "logprobs_S")


@pytest.fixture
def sampler(team: NativeTeam) -> NativeSampler:
    return NativeSampler(team.library, team.handle, team.threads)


def some_logits(rng: np.random.Generator, draws: int, vocabulary: int) -> np.ndarray:
    """Rows from nearly flat to steep, as they come or rounded so that there are many ties."""
    logits_SV = rng.normal(0, rng.choice([0.1, 1, 3, 10], (draws, 1)), (draws, vocabulary))
    logits_SV[:, : vocabulary // 50 + 1] += 8
    rounded_S = rng.random(draws) < 0.3
    logits_SV[rounded_S] = logits_SV[rounded_S].round(1)
    return rng.permuted(logits_SV, axis=1).astype(np.float32)


def some_batch(rng: np.random.Generator, draws: int, vocabulary: int) -> SampleBatch:
    """Draws of every kind side by side; now and then an option that nobody uses."""
    batch = SampleBatch(
        temperature_S=rng.choice([0, 1e-6, 0.3, 0.8, 1, 1.7], draws).astype(np.float32),
        seed_S=rng.integers(-(2**63), 2**63 - 1, draws),
        choice_S=rng.integers(0, 128, draws),
        position_S=rng.integers(0, 100_000, draws),
        top_k_S=rng.choice([0, 0, 1, 5, 50, 700, vocabulary, 10**12], draws),
        top_p_S=rng.choice([1, 1, 0, 0.3, 0.9, 0.95, 0.999], draws).astype(np.float32),
        min_p_S=rng.choice([0, 0, 0.001, 0.05, 0.5, 1], draws).astype(np.float32),
        repetition_S=rng.choice([1, 0.7, 1.3], draws).astype(np.float32),
        presence_S=rng.choice([0, -0.5, 1.5], draws).astype(np.float32),
        frequency_S=rng.choice([0, -0.2, 0.4], draws).astype(np.float32),
        logprobs_S=rng.choice([-1, 0, 1, 20], draws),
    )
    for name in OPTIONS:
        if rng.random() < 0.3:
            setattr(batch, name, None)
    if rng.random() < 0.6:
        batch.history = [
            (draw, some_ids(rng, vocabulary), some_ids(rng, vocabulary)) for draw in range(draws) if rng.random() < 0.5
        ]
    return batch


def some_ids(rng: np.random.Generator, vocabulary: int) -> np.ndarray:
    return rng.integers(0, rng.choice([3, vocabulary // 2 + 1, vocabulary]), rng.integers(0, 300)).clip(
        0, vocabulary - 1
    )


def assert_same(got: Samples, expected: Samples) -> None:
    np.testing.assert_array_equal(got.token_S, expected.token_S)
    assert (got.logprobs is None) == (expected.logprobs is None)
    for mine, theirs in zip(got.logprobs or [], expected.logprobs or [], strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            np.testing.assert_array_equal(mine[1], theirs[1])
            np.testing.assert_allclose(mine[2], theirs[2], rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(mine[0], theirs[0], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("vocabulary", [1, 2, 15, 16, 17, 63, 255, 1000, 1025, 32_000, 49_152])
def test_tokens_are_those_of_the_reference(sampler: NativeSampler, vocabulary: int) -> None:
    rng = np.random.default_rng(vocabulary)
    for _ in range(4 if vocabulary > 10_000 else 40):
        draws = int(rng.integers(1, 20))
        logits_SV, batch = some_logits(rng, draws, vocabulary), some_batch(rng, draws, vocabulary)
        before = logits_SV.copy()
        assert_same(sampler.draw_samples(logits_SV, batch), reference(logits_SV, batch))
        np.testing.assert_array_equal(logits_SV, before)


def test_damaged_logits_are_drawn_from_as_in_the_reference(sampler: NativeSampler) -> None:
    rng = np.random.default_rng(1)
    for _ in range(60):
        logits_SV, batch = some_logits(rng, 12, 70), some_batch(rng, 12, 70)
        value = rng.choice([np.nan, -np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-40], logits_SV.shape)
        logits_SV = np.where(rng.random((12, 1)) * rng.random(logits_SV.shape) > 0.5, value, logits_SV)
        logits_SV[rng.integers(0, 12)] = rng.choice(value.ravel())
        logits_SV = logits_SV.astype(np.float32)
        with np.errstate(all="ignore"):
            expected = reference(logits_SV, batch)
        assert_same(sampler.draw_samples(logits_SV, batch), expected)


@pytest.mark.parametrize("temperature", [1e-45, 1e-30, 1e-6, 1e30, 3e38])
@pytest.mark.parametrize("largest", [1e-30, 20.0, 1e30])
def test_extreme_temperatures(sampler: NativeSampler, temperature: float, largest: float) -> None:
    rng = np.random.default_rng(2)
    logits_SV = np.clip(rng.normal(0, 1, (30, 500)) * largest, -largest, largest).astype(np.float32)
    batch = SampleBatch(np.full(30, temperature, np.float32), *(np.arange(30, dtype=np.int64) for _ in range(3)))
    np.testing.assert_array_equal(sampler.draw_samples(logits_SV, batch).token_S, reference(logits_SV, batch).token_S)
    batch.top_p_S, batch.min_p_S = np.full(30, 0.9), np.full(30, 0.01)
    np.testing.assert_array_equal(sampler.draw_samples(logits_SV, batch).token_S, reference(logits_SV, batch).token_S)


def test_a_flat_distribution_keeps_its_exact_share(sampler: NativeSampler) -> None:
    """All alike: top-p must find its place among 20,000 ties, which ids decide."""
    logits_SV = np.zeros((20, 20_000), np.float32)
    batch = SampleBatch(np.ones(20, np.float32), *(np.arange(20, dtype=np.int64) for _ in range(3)))
    batch.top_p_S = np.linspace(0.001, 0.999, 20)
    token_S = sampler.draw_samples(logits_SV, batch).token_S
    np.testing.assert_array_equal(token_S, reference(logits_SV, batch).token_S)
    assert (token_S < np.ceil(batch.top_p_S * 20_000 + 1e-6)).all()


def test_ids_outside_the_vocabulary_are_passed_over(sampler: NativeSampler) -> None:
    logits_SV = np.random.default_rng(3).normal(0, 1, (1, 40)).astype(np.float32)
    batch = SampleBatch(
        np.zeros(1, np.float32), *(np.zeros(1, np.int64) for _ in range(3)), repetition_S=np.full(1, 9.0)
    )
    best = int(logits_SV.argmax())
    strange = np.array([40, -1, 2**31 - 1, -(2**31), best])
    batch.history = [(0, strange, strange)]
    expected = SampleBatch(
        batch.temperature_S, batch.seed_S, batch.choice_S, batch.position_S, repetition_S=batch.repetition_S
    )
    expected.history = [(0, np.array([best]), np.array([best]))]
    assert sampler.draw_samples(logits_SV, batch).token_S == reference(logits_SV, expected).token_S


def test_logits_of_other_layouts(sampler: NativeSampler) -> None:
    """Rows of a wider buffer, one row for all draws, every second column, float64, and another vocabulary each time."""
    wide = np.random.default_rng(4).normal(0, 1, (5, 300)).astype(np.float32)
    batch = SampleBatch(
        np.ones(5, np.float32), *(np.arange(5, dtype=np.int64) for _ in range(3)), top_k_S=np.full(5, 9)
    )
    for logits_SV in (wide[:, :200], np.broadcast_to(wide[0], (5, 300)), wide[:, ::2], wide.astype(np.float64)):
        np.testing.assert_array_equal(
            sampler.draw_samples(logits_SV, batch).token_S, reference(logits_SV, batch).token_S
        )


def test_no_draws(sampler: NativeSampler) -> None:
    empty = np.zeros(0, np.int64)
    samples = sampler.draw_samples(
        np.zeros((0, 9), np.float32), SampleBatch(np.zeros(0, np.float32), empty, empty, empty)
    )
    assert samples.token_S.shape == (0,)
