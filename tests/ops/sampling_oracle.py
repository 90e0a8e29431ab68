"""Sampling written the plain way, one draw at a time: the exact distribution that a draw must have. And builders."""

import numpy as np

from octavo.ops.backend import SampleBatch


def sample_batch(draws: int, *, temperature: float = 1.0, seed: int = 0, **settings: object) -> SampleBatch:
    """All draws alike but for their position 0, 1, 2..; scalar settings are repeated per draw."""
    arrays = {name: np.full(draws, value) if np.isscalar(value) else value for name, value in settings.items()}
    return SampleBatch(
        temperature_S=np.full(draws, temperature, np.float32),
        seed_S=np.full(draws, seed, np.int64),
        choice_S=np.zeros(draws, np.int64),
        position_S=np.arange(draws, dtype=np.int64),
        **arrays,
    )


def penalised(
    logits_V: np.ndarray,
    prompt: list[int],
    output: list[int],
    repetition: float = 1.0,
    presence: float = 0.0,
    frequency: float = 0.0,
) -> np.ndarray:
    """Logits after the penalties, token by token."""
    scores_V = logits_V.astype(np.float64)
    for token in range(len(scores_V)):
        if token in prompt or token in output:
            scores_V[token] *= repetition if scores_V[token] < 0 else 1 / repetition
        if token in output:
            scores_V[token] -= presence + frequency * output.count(token)
    return scores_V


def distribution(
    scores_V: np.ndarray, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> np.ndarray:
    """Probability of each token, from penalised logits."""
    ranked = sorted(range(len(scores_V)), key=lambda token: (-scores_V[token], token))
    weight = {token: float(np.exp((scores_V[token] - scores_V[ranked[0]]) / temperature)) for token in ranked}
    kept = ranked[:top_k] if top_k else ranked
    if top_p < 1:
        mass, prefix = 0.0, []
        for token in kept:
            prefix.append(token)
            mass += weight[token]
            if mass >= top_p * sum(weight[t] for t in kept):
                break
        kept = prefix
    kept = [token for token in kept if weight[token] >= min_p]
    probability_V = np.zeros(len(scores_V))
    for token in kept:
        probability_V[token] = weight[token] / sum(weight[t] for t in kept)
    return probability_V
