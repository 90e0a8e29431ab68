"""Sampling by the native library: a SampleBatch as the C struct, and its results as Samples. How a token is drawn is
specified in `ops/reference/sample.py` and done in native/isa/sample.h.

Shapes: S draws, V vocabulary, M most likely tokens reported.
"""

from __future__ import annotations

import ctypes

import numpy as np

from octavo.ops.backend import SampleBatch, Samples
from octavo.ops.native.abi import History, NativeSampleBatch

# Fields whose arrays the library reads as they are, and those that are converted where a batch has them.
_ALWAYS: dict[str, type[np.generic]] = {
    "temperature_S": np.float32,
    "seed_S": np.int64,
    "choice_S": np.int64,
    "position_S": np.int64,
}
_OPTIONAL: dict[str, type[np.generic]] = {
    "top_k_S": np.int64,
    "top_p_S": np.float64,
    "min_p_S": np.float64,
    "repetition_S": np.float64,
    "presence_S": np.float64,
    "frequency_S": np.float64,
    "logprobs_S": np.int64,
}


class NativeSampler:
    """Draws with a thread team of the library: `team` is its handle, `threads` how many it has."""

    def __init__(self, library: ctypes.CDLL, team: int, threads: int) -> None:
        self._library = library
        self._team = team
        self._threads = threads
        self._scratch = np.zeros(0, np.uint8)
        self._scratch_vocabulary = 0

    def draw_samples(self, logits_SV: np.ndarray, batch: SampleBatch) -> Samples:
        """See `ops.reference.sample.draw_samples`, whose tokens these are. `logits_SV` float32, left unchanged."""
        if logits_SV.dtype != np.float32 or logits_SV.strides[1] != 4:
            logits_SV = np.ascontiguousarray(logits_SV, np.float32)
        draws, vocabulary = logits_SV.shape
        token_S = np.empty(draws, np.int64)
        native = NativeSampleBatch(logits_SV.ctypes.data, logits_SV.strides[0] // 4, draws, vocabulary)
        native.token_S = token_S.ctypes.data
        native.scratch = self._scratch_of(vocabulary)
        kept_alive: list[object] = [
            self._set(native, name, getattr(batch, name), dtype) for name, dtype in _ALWAYS.items()
        ]
        for name, dtype in _OPTIONAL.items():
            value_S = getattr(batch, name)
            if value_S is not None:
                kept_alive.append(self._set(native, name, value_S, dtype))
        if batch.history:
            kept_alive += self._set_history(native, batch.history)
        if batch.logprobs_S is None:
            self._library.octavo_sample(self._team, native)
            return Samples(token_S)
        return self._draw_with_logprobs(native, token_S, batch.logprobs_S)

    def _draw_with_logprobs(self, native: NativeSampleBatch, token_S: np.ndarray, wanted_S: np.ndarray) -> Samples:
        draws, vocabulary = native.draws, native.vocabulary
        most = max(min(int(wanted_S.max()), vocabulary), 0)
        logprob_S = np.empty(draws)
        top_id_SM, top_logprob_SM = np.empty((draws, most), np.int64), np.empty((draws, most))
        native.logprob_S = logprob_S.ctypes.data
        native.top_id_SM, native.top_logprob_SM = top_id_SM.ctypes.data, top_logprob_SM.ctypes.data
        native.top_stride = most
        self._library.octavo_sample(self._team, native)
        if not (wanted_S >= 0).any():
            return Samples(token_S)
        report = [
            (logprob, top_id_SM[draw, :wanted], top_logprob_SM[draw, :wanted]) if wanted >= 0 else None
            for draw, (wanted, logprob) in enumerate(zip(wanted_S.tolist(), logprob_S.tolist(), strict=True))
        ]
        return Samples(token_S, report)

    def _scratch_of(self, vocabulary: int) -> int:
        """The workers' memory. The system gives it as it is touched: greedy draws take none."""
        if vocabulary != self._scratch_vocabulary:
            self._scratch = np.zeros(self._library.octavo_sample_scratch(vocabulary) * self._threads, np.uint8)
            self._scratch_vocabulary = vocabulary
        return self._scratch.ctypes.data

    @staticmethod
    def _set(native: NativeSampleBatch, name: str, value_S: np.ndarray, dtype: type[np.generic]) -> np.ndarray:
        array_S = np.ascontiguousarray(value_S, dtype)
        setattr(native, name, array_S.ctypes.data)
        return array_S

    @staticmethod
    def _set_history(native: NativeSampleBatch, history: list[tuple[int, np.ndarray, np.ndarray]]) -> list[object]:
        of_draws = (History * native.draws)()
        kept_alive: list[object] = [of_draws]
        for draw, prompt, output in history:
            prompt, output = np.ascontiguousarray(prompt, np.int32), np.ascontiguousarray(output, np.int32)
            of_draws[draw] = History(prompt.ctypes.data, output.ctypes.data, len(prompt), len(output))
            kept_alive += [prompt, output]
        native.history_S = of_draws
        return kept_alive
