"""Sampling, the specification: penalties -> temperature -> top-k -> top-p -> min-p -> draw; and log probabilities of
the distribution as the model gave it. Vectorised over draws and vocabulary; noise comes from `noise.py`.

Order. vLLM applies min-p before top-k and top-p; Hugging Face transformers as here. All three keep a prefix of the
tokens by falling probability, and top-k and min-p commute; only top-p cares, since it takes a share of what is left.
Here that is the mass after top-k alone, so `top_p=0.9` means the same with and without min-p.
Ties: a smaller token id counts as more probable, so top_k=1 is greedy and every filter keeps an exact count.

Shapes: S draws, V vocabulary. Arithmetic is in float64 from the penalties on, whatever the logits are.
"""

from __future__ import annotations

import numpy as np

from octavo.ops.backend import SampleBatch, Samples
from octavo.ops.reference.noise import gumbel


def draw_samples(logits_SV: np.ndarray, batch: SampleBatch) -> Samples:
    """One token per draw, and log probabilities for those that asked. `logits_SV` is left unchanged.

    Logits may be -inf (never drawn). Greedy draws take the largest penalised logit, the smallest id among equals.
    """
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

    def setting(of_all: np.ndarray | None, off: float) -> np.ndarray | None:
        values_S = None if of_all is None else of_all[draw_S]
        return None if values_S is None or np.all(values_S == off) else values_S

    top_k_S, top_p_S = setting(batch.top_k_S, 0), setting(batch.top_p_S, 1)
    min_p_S = setting(batch.min_p_S, 0)
    if top_k_S is not None or top_p_S is not None:
        _keep_most_likely(scores_SV, top_k_S, top_p_S)
    if min_p_S is not None:
        with np.errstate(divide="ignore"):  # log 0 = -inf: the filter is off for that draw
            floor_S = np.log(min_p_S.astype(np.float64))
        scores_SV[scores_SV < floor_S[:, None]] = -np.inf  # the largest score is 0
    scores_SV += gumbel(batch.seed_S[draw_S], batch.choice_S[draw_S], batch.position_S[draw_S], scores_SV.shape[1])
    drawn_S: np.ndarray = scores_SV.argmax(axis=1)
    return drawn_S


def _keep_most_likely(scores_SV: np.ndarray, top_k_S: np.ndarray | None, top_p_S: np.ndarray | None) -> None:
    """Set to -inf all but the top_k most likely of each draw, then all but the fewest that hold top_p of the rest."""
    draws, vocabulary = scores_SV.shape
    sorted_SV = np.sort(scores_SV, axis=1)[:, ::-1]
    keep_S = np.full(draws, vocabulary)
    if top_k_S is not None:
        keep_S = np.where(top_k_S > 0, np.minimum(top_k_S, vocabulary), vocabulary)
    if top_p_S is not None:
        mass_SV = np.exp(sorted_SV)
        mass_SV[np.arange(vocabulary) >= keep_S[:, None]] = 0.0
        np.cumsum(mass_SV, axis=1, out=mass_SV)
        wanted_S = mass_SV[:, -1] * np.minimum(top_p_S.astype(np.float64), 1.0)
        short_S = np.count_nonzero(mass_SV < wanted_S[:, None], axis=1)  # prefixes that do not hold enough
        keep_S = np.where(top_p_S < 1, np.minimum(keep_S, short_S + 1), keep_S)
    last_S1 = np.take_along_axis(sorted_SV, keep_S[:, None] - 1, axis=1)
    spare_S = keep_S - np.count_nonzero(scores_SV > last_S1, axis=1)  # how many equal to the last one may stay
    equal_SV = scores_SV == last_S1
    tied_S = np.count_nonzero(equal_SV, axis=1) > spare_S
    scores_SV[scores_SV < last_S1] = -np.inf
    if tied_S.any():
        late_SV = np.cumsum(equal_SV[tied_S], axis=1) > spare_S[tied_S, None]
        scores_SV[tied_S] = np.where(equal_SV[tied_S] & late_SV, -np.inf, scores_SV[tied_S])


def _report_logprobs(
    logits_SV: np.ndarray, token_S: np.ndarray, wanted_S: np.ndarray | None
) -> list[tuple[float, np.ndarray, np.ndarray] | None] | None:
    """Per draw (log probability of its token, ids of the most likely, theirs), best first; None where not wanted."""
    if wanted_S is None or np.all(wanted_S < 0):
        return None
    asked_A = np.flatnonzero(wanted_S >= 0)
    logprob_AV = _log_softmax(logits_SV[asked_A].astype(np.float64))
    most = min(int(wanted_S.max()), logits_SV.shape[1])
    top_AM = _top_ids(logprob_AV, most)
    report: list[tuple[float, np.ndarray, np.ndarray] | None] = [None] * len(token_S)
    for logprob_V, top_M, draw in zip(logprob_AV, top_AM, asked_A, strict=True):
        ids = top_M[: wanted_S[draw]]
        report[draw] = (float(logprob_V[token_S[draw]]), ids, logprob_V[ids])
    return report


def _log_softmax(logits_SV: np.ndarray) -> np.ndarray:
    logits_SV -= logits_SV.max(axis=1, keepdims=True)
    logits_SV -= np.log(np.exp(logits_SV).sum(axis=1, keepdims=True))
    return logits_SV


def _top_ids(values_SV: np.ndarray, count: int) -> np.ndarray:
    """Ids [S, count] of the largest values, best first, smaller ids first among equals."""
    draws, vocabulary = values_SV.shape
    if count == 0:
        return np.empty((draws, 0), np.int64)
    least_S1 = np.partition(values_SV, vocabulary - count, axis=1)[:, vocabulary - count, None]
    rank_SV = np.where(values_SV > least_S1, 2, values_SV == least_S1)
    candidates_SM = np.argsort(-rank_SV, axis=1, kind="stable")[:, :count]
    order_SM = np.argsort(-np.take_along_axis(values_SV, candidates_SM, axis=1), axis=1, kind="stable")
    return np.take_along_axis(candidates_SM, order_SM, axis=1)
