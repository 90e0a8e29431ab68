"""Samplers against exact distributions, and that a draw depends on nothing but its own numbers."""

from collections.abc import Callable

import numpy as np
import pytest
from sampling_oracle import distribution, penalised, sample_batch

from octavo.ops.backend import SampleBatch
from octavo.ops.reference import noise

VOCABULARY = 23
DRAWS = 40_000


def logits(seed: int, draws: int = 1, vocabulary: int = VOCABULARY) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, (draws, vocabulary)).astype(np.float32)


def chi_square(count_V: np.ndarray, probability_V: np.ndarray) -> float:
    """Distance of counts from expectation in standard deviations of the chi-square distribution."""
    assert count_V[probability_V == 0].sum() == 0, "an excluded token was drawn"
    expected = probability_V[probability_V > 0] * count_V.sum()
    rare = expected < 5
    seen = count_V[probability_V > 0]
    if rare.any():  # pooled, as the approximation needs
        expected, seen = np.append(expected[~rare], expected[rare].sum()), np.append(seen[~rare], seen[rare].sum())
    freedom = max(len(expected) - 1, 1)
    statistic = ((seen - expected) ** 2 / np.maximum(expected, 1e-9)).sum()
    return float((statistic - freedom) / np.sqrt(2 * freedom))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"top_k": 1},
        {"top_k": 4},
        {"top_k": 1000},
        {"top_p": 0.05},
        {"top_p": 0.8},
        {"min_p": 0.2},
        {"min_p": 1.0},
        {"top_k": 7, "top_p": 0.7, "min_p": 0.1},
    ],
    ids=str,
)
def test_draws_have_the_exact_distribution(draw_samples: Callable, temperature: float, filters: dict) -> None:
    logits_V = logits(11)[0]
    settings = {f"{name}_S": value for name, value in filters.items()}
    batch = sample_batch(DRAWS, temperature=temperature, seed=5, **settings)
    tokens = draw_samples(np.broadcast_to(logits_V, (DRAWS, VOCABULARY)), batch).token_S
    probability_V = distribution(logits_V, np.float32(temperature), **filters)
    assert abs(chi_square(np.bincount(tokens, minlength=VOCABULARY), probability_V)) < 4.5


@pytest.mark.parametrize("varied", ["seed_S", "choice_S", "position_S"])
def test_each_counter_gives_independent_draws(draw_samples: Callable, varied: str) -> None:
    """Neighbouring seeds, choices and positions: right frequencies, and no memory from one draw to the next."""
    batch = sample_batch(DRAWS, seed=-(2**62))
    batch.position_S[:] = 7
    setattr(batch, varied, np.arange(DRAWS, dtype=np.int64) - 3)
    tokens = draw_samples(np.zeros((DRAWS, 4), np.float32), batch).token_S
    pairs = np.bincount(tokens[:-1] * 4 + tokens[1:], minlength=16)
    assert abs(chi_square(pairs, np.full(16, 1 / 16))) < 4.5


def mixed_batch(draws: int) -> SampleBatch:
    """A different setting for every draw, greedy ones and penalties among them."""
    rng = np.random.default_rng(1)
    batch = sample_batch(
        draws,
        top_k_S=rng.integers(0, 9, draws),
        top_p_S=rng.uniform(0.2, 1.0, draws).astype(np.float32),
        min_p_S=rng.choice([0.0, 0.05], draws).astype(np.float32),
        repetition_S=rng.uniform(0.5, 2.0, draws),
        presence_S=rng.uniform(-1, 1, draws),
        frequency_S=rng.uniform(-1, 1, draws),
        logprobs_S=rng.integers(-1, 4, draws),
    )
    batch.temperature_S = rng.choice([0.0, 0.5, 1.5], draws).astype(np.float32)
    batch.seed_S = rng.integers(-(2**63), 2**63 - 1, draws)
    batch.history = [(s, rng.integers(0, 50, 9), rng.integers(0, 50, s)) for s in range(0, draws, 2)]
    return batch


def one_of(batch: SampleBatch, draw: int) -> SampleBatch:
    """The batch of draw `draw` alone."""
    alone = {
        name: value[draw : draw + 1]
        for name in SampleBatch.__dataclass_fields__
        if isinstance(value := getattr(batch, name), np.ndarray)
    }
    history = [(0, prompt, output) for s, prompt, output in batch.history or [] if s == draw]
    return SampleBatch(**alone, history=history)


def test_a_draw_does_not_depend_on_its_batch_mates(draw_samples: Callable) -> None:
    logits_SV = logits(2, 31, 1009)
    batch = mixed_batch(31)
    together = draw_samples(logits_SV, batch)
    for draw in range(31):
        alone = draw_samples(logits_SV[draw : draw + 1], one_of(batch, draw))
        assert alone.token_S[0] == together.token_S[draw]
        mine, theirs = (alone.logprobs or [None])[0], together.logprobs[draw]
        assert (mine is None) == (theirs is None) == (batch.logprobs_S[draw] < 0)
        if mine is not None:
            assert mine[0] == theirs[0]
            np.testing.assert_array_equal(mine[1], theirs[1])
            np.testing.assert_array_equal(mine[2], theirs[2])


def test_penalties_equal_the_plain_ones(draw_samples: Callable) -> None:
    logits_SV = logits(3, 40)
    rng = np.random.default_rng(4)
    settings = {
        "repetition": rng.uniform(0.3, 3.0, 40),
        "presence": rng.uniform(-2, 2, 40),
        "frequency": rng.uniform(-2, 2, 40),
    }
    history = [(s, rng.integers(0, VOCABULARY, 6), rng.integers(0, VOCABULARY, s % 9)) for s in range(0, 40, 3)]
    batch = sample_batch(40, temperature=0.0, **{f"{name}_S": values for name, values in settings.items()})
    batch.history = history
    expected = logits_SV.astype(np.float64)
    for s, prompt, output in history:
        own = {name: float(values[s]) for name, values in settings.items()}
        expected[s] = penalised(logits_SV[s], prompt.tolist(), output.tolist(), **own)
    before = logits_SV.copy()
    np.testing.assert_array_equal(draw_samples(logits_SV, batch).token_S, expected.argmax(axis=1))
    np.testing.assert_array_equal(logits_SV, before)
    assert (expected.argmax(axis=1) != before.argmax(axis=1)).any(), "the penalties must matter here"


def test_penalised_draws_have_the_exact_distribution(draw_samples: Callable) -> None:
    logits_V = logits(6)[0]
    prompt, output = np.array([1, 2, 2]), np.array([3, 3, 4, 1])
    batch = sample_batch(DRAWS, temperature=0.9, repetition_S=1.4, presence_S=0.5, frequency_S=0.7, top_k_S=9)
    batch.history = [(s, prompt, output) for s in range(DRAWS)]
    tokens = draw_samples(np.broadcast_to(logits_V, (DRAWS, VOCABULARY)), batch).token_S
    scores_V = penalised(logits_V, prompt.tolist(), output.tolist(), 1.4, 0.5, 0.7)
    probability_V = distribution(scores_V, np.float32(0.9), top_k=9)
    assert abs(chi_square(np.bincount(tokens, minlength=VOCABULARY), probability_V)) < 4.5


@pytest.mark.parametrize("temperature", [0.0, 1e-45, 1e-6])
def test_cold_draws_are_greedy(draw_samples: Callable, temperature: float, recwarn: pytest.WarningsRecorder) -> None:
    logits_SV = logits(7, 50)
    batch = sample_batch(50, temperature=temperature, top_p_S=0.9, min_p_S=0.1)
    np.testing.assert_array_equal(draw_samples(logits_SV, batch).token_S, logits_SV.argmax(axis=1))
    assert not recwarn.list


def test_ties_go_to_the_smallest_id(draw_samples: Callable) -> None:
    tied = np.array([[0, 3, 1, 3, 3]], np.float32)
    assert draw_samples(tied, sample_batch(1, temperature=0.0)).token_S.tolist() == [1]
    many = np.broadcast_to(tied, (400, 5))
    assert set(draw_samples(many, sample_batch(400, top_k_S=1)).token_S) == {1}
    assert set(draw_samples(many, sample_batch(400, top_k_S=2)).token_S) == {1, 3}
    assert set(draw_samples(many, sample_batch(400, top_p_S=0.6)).token_S) == {1, 3}


@pytest.mark.parametrize("filters", [{}, {"top_k_S": 3}, {"top_p_S": 0.9}, {"min_p_S": 0.01}], ids=str)
@pytest.mark.parametrize("temperature", [0.0, 1e-6, 1.0, 2.0])
def test_minus_infinity_is_never_drawn(
    draw_samples: Callable, temperature: float, filters: dict, recwarn: pytest.WarningsRecorder
) -> None:
    logits_SV = np.full((200, 9), -np.inf, np.float32)
    logits_SV[:, [2, 5]] = [-3e38, 1.0]
    logits_SV[100:, 2] = 1.0
    tokens = draw_samples(logits_SV, sample_batch(200, temperature=temperature, logprobs_S=4, **filters)).token_S
    assert set(tokens[:100]) == {5}
    assert set(tokens[100:]) <= {2, 5}
    assert not recwarn.list


@pytest.mark.parametrize("filters", [{}, {"top_k": 4}, {"top_p": 0.5}, {"min_p": 0.3}], ids=str)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf], ids=str)
def test_a_row_of_broken_logits_harms_nobody(
    draw_samples: Callable, broken: float, temperature: float, filters: dict
) -> None:
    """A draw whose logits are broken, wholly or at one place, has a token; its batch mates have theirs."""
    settings = {f"{name}_S": value for name, value in filters.items()}
    batch = sample_batch(3, temperature=temperature, logprobs_S=5, **settings)
    logits_SV = logits(4, draws=3)
    alone = draw_samples(logits_SV[2:], one_of(batch, 2))
    logits_SV[0], logits_SV[1, 7] = broken, broken
    samples = draw_samples(logits_SV, batch)
    assert np.all((samples.token_S >= 0) & (samples.token_S < VOCABULARY))
    assert samples.token_S[2] == alone.token_S[0]
    if broken == np.inf:
        assert samples.token_S[1] == 7
    else:
        assert samples.token_S[1] != 7
    assert samples.logprobs is not None
    assert alone.logprobs is not None
    np.testing.assert_array_equal(samples.logprobs[2][1], alone.logprobs[0][1])
    assert not any(np.isnan(top_M).any() for _, _, top_M in samples.logprobs)


def test_log_probabilities_are_those_of_the_model(draw_samples: Callable) -> None:
    logits_SV = logits(8, 3, 101)
    logits_SV[1, [5, 9, 70]] = 9.0  # a tie among the most likely
    batch = sample_batch(3, temperature=1.7, top_k_S=2, repetition_S=3.0, logprobs_S=np.array([5, 2, -1]))
    batch.history = [(0, np.arange(50), np.arange(50))]
    samples = draw_samples(logits_SV, batch)
    exact_SV = logits_SV.astype(np.float64)
    exact_SV -= np.log(np.exp(exact_SV).sum(axis=1, keepdims=True))
    for s, count in enumerate([5, 2]):
        of_token, ids, of_ids = samples.logprobs[s]
        best = sorted(range(101), key=lambda token: (-exact_SV[s, token], token))[:count]
        assert ids.tolist() == best
        np.testing.assert_allclose(of_ids, exact_SV[s, best], rtol=1e-12)
        assert of_token == pytest.approx(exact_SV[s, samples.token_S[s]], rel=1e-12)
    assert samples.logprobs[2] is None
    assert draw_samples(logits_SV, sample_batch(3)).logprobs is None


@pytest.mark.parametrize(
    "filters", [{"top_k": 700}, {"top_p": 0.99}, {"min_p": 1e-4}, {"top_k": 700, "top_p": 0.2}], ids=str
)
def test_filters_that_keep_many(draw_samples: Callable, filters: dict) -> None:
    """More than are ranked at first; the distribution is flat, so that top-p keeps most of it."""
    logits_V = (np.random.default_rng(3).integers(0, 4, 1500) / 2).astype(np.float32)
    batch = sample_batch(800, **{f"{name}_S": value for name, value in filters.items()})
    tokens = draw_samples(np.broadcast_to(logits_V, (800, 1500)), batch).token_S
    probability_V = distribution(logits_V, 1.0, **filters)
    assert probability_V[tokens].min() > 0, "an excluded token was drawn"
    share_B = np.array([probability_V[start : start + 75].sum() for start in range(0, 1500, 75)])
    assert abs(chi_square(np.bincount(tokens // 75, minlength=20), share_B)) < 4.5


def test_no_top_alternatives_and_more_than_there_are(draw_samples: Callable) -> None:
    logits_SV = logits(9, 2, 3)
    samples = draw_samples(logits_SV, sample_batch(2, temperature=0.0, logprobs_S=np.array([0, 20])))
    assert [len(ids) for _, ids, _ in samples.logprobs] == [0, 3]


def test_noise_is_open_and_uniform() -> None:
    u_SV = noise.uniform(np.array([0, 1, -1]), np.array([0, 0, 2]), np.array([0, 5, 9]), np.arange(200_000)[None])
    assert 0 < u_SV.min() < 1e-4
    assert 1 - 1e-4 < u_SV.max() < 1
    count_SB = np.stack([np.histogram(row, 64, (0, 1))[0] for row in u_SV])
    assert all(abs(chi_square(count_B, np.full(64, 1 / 64))) < 4.5 for count_B in count_SB)


def splitmix(state: int) -> int:
    z = state % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def test_noise_is_the_documented_hash() -> None:
    """In Python integers. Changing the hash would change what every seeded request answers."""
    golden = 0x9E3779B97F4A7C15
    assert splitmix(golden) == 0xE220A8397B1DCDAF, "SplitMix64's published first output for seed 0"
    for seed, choice, position in [(0, 0, 0), (-1, 2, 9), (2**63 - 1, 127, 10**6), (-(2**63), 0, 1)]:
        key = 0
        for counter in (seed, choice, position):
            key = splitmix((key ^ counter % 2**64) + golden)
        expected = [((splitmix(key + (token + 1) * golden) >> 12) + 0.5) / 2**52 for token in range(40)]
        got = noise.uniform(np.array([seed]), np.array([choice]), np.array([position]), np.arange(40)[None])
        assert got[0].tolist() == expected
