"""Top-k, top-p and min-p, in this order, and the ranking that they and log probabilities share.

Order. vLLM applies min-p before top-k and top-p; Hugging Face transformers as here. All three keep a prefix of the
tokens by falling probability, and top-k and min-p commute; only top-p cares, since it takes a share of what is left.
Here that is the mass after top-k alone, so `top_p=0.9` means the same with and without min-p.
Ties: a smaller token id counts as more probable, so top_k=1 is greedy and every filter keeps an exact count.

Shapes: S draws, V vocabulary, M candidates, U some of the draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from octavo.ops.backend import SampleBatch

FIRST_CANDIDATES = 256  # ranked at first; more only when a filter keeps more
GROWTH = 16


@dataclass(frozen=True, slots=True)
class Filters:
    """The settings of S draws: top_k 0, top_p 1 and min_p 0 are off."""

    top_k_S: np.ndarray
    top_p_S: np.ndarray
    min_p_S: np.ndarray

    @classmethod
    def of(cls, batch: SampleBatch, draw_S: np.ndarray) -> Self:
        """Those of the draws `draw_S`."""

        def setting(of_all: np.ndarray | None, off: float, dtype: type) -> np.ndarray:
            return np.full(len(draw_S), off, dtype) if of_all is None else of_all[draw_S].astype(dtype)

        return cls(
            setting(batch.top_k_S, 0, np.int64),
            setting(batch.top_p_S, 1, np.float64),
            setting(batch.min_p_S, 0, np.float64),
        )

    def active(self) -> np.ndarray:
        """Bool [S]: draws with a filter on."""
        active_S: np.ndarray = (self.top_k_S > 0) | (self.top_p_S < 1) | (self.min_p_S > 0)
        return active_S

    def of_draws(self, draw_U: np.ndarray) -> Self:
        return type(self)(self.top_k_S[draw_U], self.top_p_S[draw_U], self.min_p_S[draw_U])

    def apply(self, scores_SV: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ids [S, M] of at least all tokens that stay, best first, and their scores, -inf for those that go.

        `scores_SV` are float64, over temperature, with 0 the largest of each draw.
        """
        vocabulary = scores_SV.shape[1]
        mass_S = np.exp(scores_SV).sum(axis=1)
        candidates = min(max(FIRST_CANDIDATES, self._shared_top_k()), vocabulary)
        while True:
            id_SM = most_likely(scores_SV, candidates)
            score_SM = np.take_along_axis(scores_SV, id_SM, axis=1)
            keep_S = self._count_kept(score_SM, mass_S)
            if candidates == vocabulary or keep_S.max() < candidates:
                break
            candidates = min(candidates * GROWTH, vocabulary)
        score_SM[np.arange(candidates) >= keep_S[:, None]] = -np.inf
        return id_SM, score_SM

    def _shared_top_k(self) -> int:
        """The largest top-k of which top-p takes a share: the mass of these must be known at once."""
        return int(self.top_k_S[self.top_p_S < 1].max(initial=0))

    def _count_kept(self, score_SM: np.ndarray, mass_S: np.ndarray) -> np.ndarray:
        """How many of the M most likely tokens stay. All M: maybe others, too, would."""
        candidates = score_SM.shape[1]
        keep_S = np.where(self.top_k_S > 0, np.minimum(self.top_k_S, candidates), candidates)
        mass_SM = np.cumsum(np.exp(score_SM), axis=1)
        after_top_k_S = np.take_along_axis(mass_SM, keep_S[:, None] - 1, axis=1)[:, 0]
        wanted_S = self.top_p_S * np.where(self.top_k_S > 0, after_top_k_S, mass_S)
        enough_S = np.count_nonzero(mass_SM < wanted_S[:, None], axis=1) + 1
        keep_S = np.where(self.top_p_S < 1, np.minimum(keep_S, enough_S), keep_S)
        likely_S = np.count_nonzero(np.exp(score_SM) >= self.min_p_S[:, None], axis=1)
        return np.minimum(keep_S, np.where(self.min_p_S > 0, likely_S, candidates))


def most_likely(values_SV: np.ndarray, count: int) -> np.ndarray:
    """Ids [S, count] of the largest values, best first, smaller ids first among equals."""
    draws, vocabulary = values_SV.shape
    if count == 0:
        return np.empty((draws, 0), np.int64)
    least_S1 = np.partition(values_SV, vocabulary - count, axis=1)[:, vocabulary - count, None]
    chosen_SV = values_SV >= least_S1
    crowded_U = np.flatnonzero(np.count_nonzero(chosen_SV, axis=1) > count)
    if crowded_U.size:  # more equal the least than there is room for: the first by id
        equal_UV = values_SV[crowded_U] == least_S1[crowded_U]
        room_U1 = count - np.count_nonzero(chosen_SV[crowded_U] & ~equal_UV, axis=1, keepdims=True)
        chosen_SV[crowded_U] &= ~equal_UV | (np.cumsum(equal_UV, axis=1) <= room_U1)
    id_SM = np.nonzero(chosen_SV)[1].reshape(draws, count)
    order_SM = np.argsort(-np.take_along_axis(values_SV, id_SM, axis=1), axis=1, kind="stable")
    return np.take_along_axis(id_SM, order_SM, axis=1)
