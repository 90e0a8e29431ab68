"""RowState: what the runner remembers of each running sequence, in arrays indexed by its stable row. Owns known tokens
and block tables; how tokens are chosen is `sampling.py`, and which blocks a row has is the scheduler's decision.

Shapes: R device rows (as many as sequences may run at once), L longest sequence, W table width, S draws of a step.
"""

from __future__ import annotations

import numpy as np

from octavo.core.plan import Admit, Row
from octavo.runner.sampling import SamplingState


class RowState:
    """Tokens sampled by a launched step are known here before anybody else knows them, so that the next step can be
    launched without waiting for its commit.

    The arrays are reserved at full size and cost memory only where rows have been: `np.zeros` leaves untouched
    pages to the system.
    """

    def __init__(self, rows: int, max_len: int, block_size: int) -> None:
        self.block_size = block_size
        self.token_RL = np.zeros((rows, max_len), np.int32)
        self.table_RW = np.zeros((rows, -(-max_len // block_size)), np.int32)
        self.length_R = np.zeros(rows, np.int64)  # known tokens; 0 for a row that nobody holds
        self.prompt_R = np.zeros(rows, np.int64)  # how many of them are the prompt
        self.sampling = SamplingState(rows)

    def retire(self, row: int) -> None:
        self.length_R[row] = 0

    def admit(self, admit: Admit) -> None:
        """Take everything known of a sequence; its row was retired or never used."""
        row = admit.row
        assert self.length_R[row] == 0, f"row {row} is admitted while it is held"
        self.token_RL[row, : len(admit.tokens)] = admit.tokens
        self.table_RW[row, : len(admit.blocks)] = admit.blocks
        self.length_R[row] = len(admit.tokens)
        self.prompt_R[row] = admit.prompt_tokens
        self.sampling.admit(row, admit.params, admit.seed, admit.choice)

    def extend_tables(self, rows: list[Row]) -> None:
        """Write the blocks that the step's rows were given into their tables."""
        for row in rows:
            if row.new_blocks:
                end = row.table_start + len(row.new_blocks)
                self.table_RW[row.row, row.table_start : end] = row.new_blocks

    def append(self, row_S: np.ndarray, position_S: np.ndarray, token_S: np.ndarray) -> None:
        """The token drawn for each row becomes its last known one, at its position."""
        self.token_RL[row_S, position_S] = token_S
        self.length_R[row_S] = position_S + 1

    def prompt_and_output(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Views of the prompt's token ids and of all ids generated so far."""
        prompt = self.prompt_R[row]
        return self.token_RL[row, :prompt], self.token_RL[row, prompt : self.length_R[row]]
