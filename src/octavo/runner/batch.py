"""BatchBuilder: a plan's rows, flattened into the arrays that a model reads. Vectorised; the only Python loops run over
rows. Decides nothing: positions come from the plan, tokens and tables from RowState.

Shapes: T tokens in the step, R rows of the step, W table width, S draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octavo.core.plan import Row
from octavo.ops.backend import Backend, Batch
from octavo.runner.state import RowState


@dataclass(frozen=True, slots=True)
class Draws:
    """Which device rows get a token in this step, in the plan's order, and at which position of their sequence."""

    row_S: np.ndarray
    position_S: np.ndarray


class BatchBuilder:
    """Fills host buffers that stay where they are from step to step, and uploads what the step uses of them."""

    def __init__(self, backend: Backend, state: RowState, max_tokens: int) -> None:
        self._backend = backend
        self._state = state
        rows, width = state.table_RW.shape
        self._count_T = np.arange(max_tokens)
        self._token_T = np.empty(max_tokens, np.int32)
        self._position_T = np.empty(max_tokens, np.int32)
        self._slot_T = np.empty(max_tokens, np.int32)
        self._query_start_R1 = np.zeros(rows + 1, np.int32)
        self._kv_len_R = np.empty(rows, np.int32)
        self._table_RW = np.empty((rows, width), np.int32)

    def build(self, rows: list[Row]) -> tuple[Batch, Draws]:
        """The batch, its attention planned, and the draws that its logits are for.

        A fork draws from its parent's logits: it has them computed again, by repeating the parent's index.
        """
        state, upload = self._state, self._backend.upload
        row_R = np.array([row.row for row in rows])
        start_R = np.array([row.start for row in rows])
        count_R = np.array([row.count for row in rows])
        end_R = start_R + count_R
        assert (end_R <= state.length_R[row_R]).all(), "a plan computes tokens that nobody knows"
        query_start_R1 = self._query_start_R1[: len(rows) + 1]
        np.cumsum(count_R, out=query_start_R1[1:])
        tokens = int(query_start_R1[-1])
        kv_len_R = self._kv_len_R[: len(rows)]
        kv_len_R[:] = end_R
        table_RW = self._table_RW[: len(rows), : -(-int(end_R.max()) // state.block_size)]
        table_RW[:] = state.table_RW[row_R, : table_RW.shape[1]]
        self._fill_tokens(row_R, start_R - query_start_R1[:-1], count_R, tokens)
        drawn_S, row_S = _draws(rows)
        batch = Batch(
            tokens=tokens,
            rows=len(rows),
            token_T=upload(self._token_T[:tokens], "int32"),
            position_T=upload(self._position_T[:tokens], "int32"),
            slot_T=upload(self._slot_T[:tokens], "int32"),
            query_start_R1=upload(query_start_R1, "int32"),
            kv_len_R=upload(kv_len_R, "int32"),
            table_RW=upload(table_RW, "int32"),
            logit_S=upload(query_start_R1[1:][drawn_S] - 1, "int32"),
        )
        batch.attention = self._backend.plan_attention(batch)
        return batch, Draws(row_S, end_R[drawn_S])

    def _fill_tokens(self, row_R: np.ndarray, shift_R: np.ndarray, count_R: np.ndarray, tokens: int) -> None:
        """Token ids, positions and slots. A row's token t of the step has position t + shift."""
        state = self._state
        row_T = np.repeat(row_R, count_R)
        position_T = self._count_T[:tokens] + np.repeat(shift_R, count_R)
        block_T, offset_T = np.divmod(position_T, state.block_size)
        self._position_T[:tokens] = position_T
        self._token_T[:tokens] = state.token_RL[row_T, position_T]
        self._slot_T[:tokens] = state.table_RW[row_T, block_T] * state.block_size + offset_T


def _draws(rows: list[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Per draw the index of the plan row that computes its logits, and its device row: own first, then the forks'."""
    drawn: list[int] = []
    device_rows: list[int] = []
    for index, row in enumerate(rows):
        if row.sample:
            drawn.append(index)
            device_rows.append(row.row)
            if row.forks:
                drawn += [index] * len(row.forks)
                device_rows += row.forks
    return np.array(drawn, np.int64), np.array(device_rows, np.int64)
