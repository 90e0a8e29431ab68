"""SamplingState: every running sequence's sampling parameters as columns, and the batch of draws made from them. How
a token is drawn is the backend's op (`ops/reference/sample.py` is its specification).

Shapes: R device rows, S draws of a step.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from octavo.ops.backend import SampleBatch, Samples
from octavo.types import SamplingParams, TokenLogprob

# Field of SampleBatch -> field of SamplingParams, dtype, and the value that turns it off.
OPTIONS: dict[str, tuple[str, type[np.generic], float]] = {
    "top_k_S": ("top_k", np.int64, 0),
    "top_p_S": ("top_p", np.float32, 1.0),
    "min_p_S": ("min_p", np.float32, 0.0),
    "repetition_S": ("repetition_penalty", np.float32, 1.0),
    "presence_S": ("presence_penalty", np.float32, 0.0),
    "frequency_S": ("frequency_penalty", np.float32, 0.0),
    "logprobs_S": ("logprobs", np.int64, -1),
}
PENALTIES = ("repetition_S", "presence_S", "frequency_S")


class SamplingState:
    """Columns of length R. An option that none of a step's draws uses is None in the step's batch."""

    def __init__(self, rows: int) -> None:
        self._temperature_R = np.zeros(rows, np.float32)
        self._seed_R = np.zeros(rows, np.int64)
        self._choice_R = np.zeros(rows, np.int64)
        self._options = {field: np.full(rows, off, dtype) for field, (_, dtype, off) in OPTIONS.items()}
        self._optional_R = np.zeros(rows, bool)  # the row uses any option
        self._penalised_R = np.zeros(rows, bool)

    def admit(self, row: int, params: SamplingParams, seed: int, choice: int) -> None:
        self._temperature_R[row] = params.temperature
        self._seed_R[row] = seed
        self._choice_R[row] = choice
        used = []
        for field, (name, _, off) in OPTIONS.items():
            value = getattr(params, name)
            value = off if value is None else value
            self._options[field][row] = value
            if value != off:
                used.append(field)
        self._optional_R[row] = bool(used)
        self._penalised_R[row] = any(field in PENALTIES for field in used)

    def batch(
        self,
        row_S: np.ndarray,
        position_S: np.ndarray,
        history: Callable[[int], tuple[np.ndarray, np.ndarray]],
    ) -> SampleBatch:
        """The draws of a step, in order. `history` gives a row's prompt and output token ids."""
        batch = SampleBatch(self._temperature_R[row_S], self._seed_R[row_S], self._choice_R[row_S], position_S)
        if not self._optional_R[row_S].any():
            return batch
        for field, (_, _, off) in OPTIONS.items():
            value_S = self._options[field][row_S]
            if (value_S != off).any():
                setattr(batch, field, value_S)
        penalised_S = np.flatnonzero(self._penalised_R[row_S])
        if penalised_S.size:
            batch.history = [(draw, *history(int(row_S[draw]))) for draw in penalised_S.tolist()]
        return batch


def token_logprobs(samples: Samples, tokens: list[int]) -> list[TokenLogprob | None] | None:
    """The backend's report as plain numbers; None when no draw asked."""
    if samples.logprobs is None:
        return None
    return [
        None if report is None else TokenLogprob(token, report[0], _pairs(report[1], report[2]))
        for token, report in zip(tokens, samples.logprobs, strict=True)
    ]


def _pairs(ids: np.ndarray, logprobs: np.ndarray) -> list[tuple[int, float]]:
    return list(zip(ids.tolist(), logprobs.tolist(), strict=True))
