"""Sampling, the specification: penalties -> temperature -> top-k -> top-p -> min-p -> draw; and log probabilities of
the distribution as the model gave it. Vectorised over draws and vocabulary; noise comes from `noise.py`.

The filters and their order are specified in `filters.py`. Ties go to the smaller token id.

Shapes: S draws, V vocabulary, M candidates, U and A some of the draws. Arithmetic is in float64 from the penalties
on, whatever the logits are.
"""

from __future__ import annotations

import numpy as np

from octavo.ops.backend import SampleBatch, Samples
from octavo.ops.reference.filters import Filters, most_likely
from octavo.ops.reference.noise import gumbel


def draw_samples(logits_SV: np.ndarray, batch: SampleBatch) -> Samples:
    """One token per draw, and log probabilities for those that asked. `logits_SV` is left unchanged.

    Logits may be -inf (never drawn). Greedy draws take the largest penalised logit, the smallest id among equals.
    What a damaged model computes is drawn from as well, so that it harms no batch mates: NaN counts as -inf, inf as
    the largest number.
    """
    if not np.all(logits_SV.max(axis=1) < np.inf):
        logits_SV = np.nan_to_num(logits_SV, nan=-np.inf, neginf=-np.inf)
    scores_SV = _penalise(logits_SV, batch)
    token_S = scores_SV.argmax(axis=1)
    random_U = np.flatnonzero(batch.temperature_S > 0)
    if random_U.size:
        token_S[random_U] = _draw(scores_SV[random_U].astype(np.float64), batch, random_U)
    return Samples(token_S, _report_logprobs(logits_SV, token_S, batch.logprobs_S))


def _penalise(logits_SV: np.ndarray, batch: SampleBatch) -> np.ndarray:
    """Logits after repetition (arXiv 1909.05858), frequency and presence penalties (OpenAI); a copy if any."""
    if not batch.history:
        return logits_SV
    scores_SV = logits_SV.astype(np.float64)
    for draw, prompt, output in batch.history:
        scores_V = scores_SV[draw]
        if batch.repetition_S is not None:
            seen = np.union1d(prompt, output)
            score, penalty = scores_V[seen], float(batch.repetition_S[draw])
            scores_V[seen] = np.where(score > 0, score / penalty, score * penalty)
        written, count = np.unique(output, return_counts=True)
        if batch.frequency_S is not None:
            scores_V[written] -= float(batch.frequency_S[draw]) * count
        if batch.presence_S is not None:
            scores_V[written] -= float(batch.presence_S[draw])
    return scores_SV


def _draw(scores_SV: np.ndarray, batch: SampleBatch, draw_S: np.ndarray) -> np.ndarray:
    """Tokens [S] of the non-greedy draws `draw_S`, whose penalised logits are `scores_SV` (overwritten)."""
    largest_S1 = scores_SV.max(axis=1, keepdims=True)
    scores_SV -= np.where(np.isfinite(largest_S1), largest_S1, 0.0)
    scores_SV /= batch.temperature_S[draw_S, None].astype(np.float64)
    filters = Filters.of(batch, draw_S)
    active_S = filters.active()
    free_U, filtered_U = np.flatnonzero(~active_S), np.flatnonzero(active_S)

    def noise(draw_U: np.ndarray, id_UM: np.ndarray) -> np.ndarray:
        own_U = draw_S[draw_U]
        return gumbel(batch.seed_S[own_U], batch.choice_S[own_U], batch.position_S[own_U], id_UM)

    token_S = np.empty(len(draw_S), np.int64)
    if free_U.size:
        noise_UV = noise(free_U, np.arange(scores_SV.shape[1])[None])
        noise_UV += scores_SV[free_U]
        token_S[free_U] = noise_UV.argmax(axis=1)
    if filtered_U.size:
        id_UM, score_UM = filters.of_draws(filtered_U).apply(scores_SV[filtered_U])
        best_U1 = (noise(filtered_U, id_UM) + score_UM).argmax(axis=1, keepdims=True)
        token_S[filtered_U] = np.take_along_axis(id_UM, best_U1, axis=1)[:, 0]
    return token_S


def _report_logprobs(
    logits_SV: np.ndarray, token_S: np.ndarray, wanted_S: np.ndarray | None
) -> list[tuple[float, np.ndarray, np.ndarray] | None] | None:
    """Per draw (log probability of its token, ids of the most likely, theirs), best first; None where not wanted."""
    if wanted_S is None or np.all(wanted_S < 0):
        return None
    asked_A = np.flatnonzero(wanted_S >= 0)
    logprob_AV = logits_SV[asked_A].astype(np.float64)
    logprob_AV -= np.maximum(logprob_AV.max(axis=1, keepdims=True), np.finfo(np.float64).min)  # all may be -inf
    logprob_AV -= np.log(np.maximum(np.exp(logprob_AV).sum(axis=1, keepdims=True), np.finfo(np.float64).tiny))
    top_AM = most_likely(logprob_AV, min(int(wanted_S.max()), logits_SV.shape[1]))
    report: list[tuple[float, np.ndarray, np.ndarray] | None] = [None] * len(token_S)
    for logprob_V, top_M, draw in zip(logprob_AV, top_AM, asked_A, strict=True):
        ids = top_M[: wanted_S[draw]]
        report[draw] = (float(logprob_V[token_S[draw]]), ids, logprob_V[ids])
    return report
