"""ModelRunner: executes StepPlans on a backend, one after the other, in the order that plan.py lays down. Owns the row
state and the KV arrays; decides nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from octavo.core.plan import StepPlan, StepResult
from octavo.models.model import Model
from octavo.ops.backend import Array, Backend, KVLayer, StepLimits
from octavo.runner.batch import BatchBuilder, Draws
from octavo.runner.sampling import token_logprobs
from octavo.runner.state import RowState
from octavo.types import TokenLogprob


@dataclass(frozen=True, slots=True)
class Finished:
    """A step whose result is there already. Implements `core.plan.Pending`."""

    result: StepResult

    def wait(self) -> StepResult:
        return self.result


class ModelRunner:
    """Implements `core.plan.Runner` for a loaded model.

    `max_tokens` bounds the tokens of a step, as it did when the model was loaded. The step is computed within
    `launch`; with `depth` 2 the next one is launched before this one is committed all the same.
    """

    def __init__(
        self,
        model: Model,
        backend: Backend,
        kv: list[KVLayer],
        *,
        rows: int,
        max_tokens: int,
        max_len: int,
        block_size: int,
        depth: int = 1,
    ) -> None:
        self._backend = backend
        self._kv = kv
        self._depth = depth
        self._state = RowState(rows, max_len, block_size)
        self._builder = BatchBuilder(backend, self._state, max_tokens)
        self._forward = backend.capture(model.forward, kv, StepLimits(rows, max_tokens, rows, max_len))

    @property
    def depth(self) -> int:
        return self._depth

    def launch(self, plan: StepPlan) -> Finished:
        state = self._state
        for row in plan.retire:
            state.retire(row)
        for admit in plan.admit:
            state.admit(admit)
        state.extend_tables(plan.rows)
        if plan.copies:
            self._backend.copy_blocks(self._kv, plan.copies)
        batch, draws = self._builder.build(plan.rows)
        began = time.perf_counter()
        logits_SV = self._forward(batch)
        compute_s = time.perf_counter() - began
        tokens, logprobs = self._sample(logits_SV, draws)
        return Finished(StepResult(tokens, logprobs, compute_s))

    def _sample(self, logits_SV: Array, draws: Draws) -> tuple[list[int], list[TokenLogprob | None] | None]:
        """Draw the step's tokens and make them known to the steps that follow."""
        if not draws.row_S.size:
            return [], None
        state = self._state
        sampling = state.sampling.batch(draws.row_S, draws.position_S, state.prompt_and_output)
        samples = self._backend.sample(logits_SV, sampling)
        state.append(draws.row_S, draws.position_S, np.asarray(samples.token_S))
        tokens: list[int] = samples.token_S.tolist()
        return tokens, token_logprobs(samples, tokens)
