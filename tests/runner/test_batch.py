"""BatchBuilder and RowState against a token-by-token loop that is written for reading."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.core.plan import Admit, Row
from octavo.ops.reference.backend import ReferenceBackend
from octavo.runner.batch import BatchBuilder
from octavo.runner.state import RowState
from octavo.types import SamplingParams

MAX_LEN = 96
ROWS = 6


def _admit(row: int, tokens: list[int], blocks: list[int], prompt_tokens: int | None = None) -> Admit:
    prompt_tokens = len(tokens) if prompt_tokens is None else prompt_tokens
    return Admit(row, tokens, prompt_tokens, 0, blocks, SamplingParams(), seed=row, choice=0)


@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("seed", range(6))
def test_every_token_has_its_place(seed: int, block_size: int) -> None:
    """Random histories and spans; each array is derived again, one token at a time."""
    generator = np.random.default_rng(seed)
    backend, state = ReferenceBackend(), RowState(ROWS, MAX_LEN, block_size)
    builder = BatchBuilder(backend, state, max_tokens=ROWS * MAX_LEN)
    width = MAX_LEN // block_size
    tables = generator.permutation(ROWS * width).reshape(ROWS, width).tolist()
    histories = [generator.integers(0, 999, int(generator.integers(2, MAX_LEN))).tolist() for _ in range(ROWS)]
    rows = []
    for row in generator.permutation(ROWS)[: int(generator.integers(1, ROWS + 1))].tolist():
        state.admit(_admit(row, histories[row], tables[row][:1]))
        start = int(generator.integers(0, len(histories[row])))
        count = int(generator.integers(1, len(histories[row]) - start + 1))
        rows.append(Row(row, start, count, start + count == len(histories[row]), 1, tables[row][1:], []))
    state.extend_tables(rows)

    batch, draws = builder.build(rows)

    expected = []
    for row in rows:
        for position in range(row.start, row.start + row.count):
            slot = tables[row.row][position // block_size] * block_size + position % block_size
            expected.append((histories[row.row][position], position, slot))
    assert list(zip(batch.token_T.tolist(), batch.position_T.tolist(), batch.slot_T.tolist(), strict=True)) == expected
    assert (batch.tokens, batch.rows) == (len(expected), len(rows))
    assert np.diff(batch.query_start_R1).tolist() == [row.count for row in rows]
    assert batch.kv_len_R.tolist() == [row.start + row.count for row in rows]
    for row, table_W in zip(rows, batch.table_RW.tolist(), strict=True):
        needed = -(-(row.start + row.count) // block_size)
        assert table_W[:needed] == tables[row.row][:needed]
    sampled = [index for index, row in enumerate(rows) if row.sample]
    assert batch.logit_S.tolist() == [int(batch.query_start_R1[index + 1]) - 1 for index in sampled]
    assert draws.row_S.tolist() == [rows[index].row for index in sampled]
    assert draws.position_S.tolist() == [rows[index].start + rows[index].count for index in sampled]
    for array in (batch.token_T, batch.position_T, batch.slot_T, batch.query_start_R1, batch.kv_len_R, batch.table_RW):
        assert array.dtype == np.int32


def test_forks_draw_from_their_parents_logits_in_plan_order() -> None:
    state = RowState(ROWS, MAX_LEN, 16)
    builder = BatchBuilder(ReferenceBackend(), state, 64)
    for row in range(5):
        state.admit(_admit(row, [1, 2, 3], [row]))
    rows = [Row(0, 0, 2, False, 0, [], []), Row(1, 0, 3, True, 0, [], [4, 3]), Row(2, 2, 1, True, 0, [], [])]
    batch, draws = builder.build(rows)
    assert draws.row_S.tolist() == [1, 4, 3, 2]
    assert draws.position_S.tolist() == [3, 3, 3, 3]
    assert batch.logit_S.tolist() == [4, 4, 4, 5]


def test_a_step_that_draws_nothing() -> None:
    state = RowState(ROWS, MAX_LEN, 16)
    state.admit(_admit(0, list(range(40)), [0, 1, 2]))
    batch, draws = BatchBuilder(ReferenceBackend(), state, 64).build([Row(0, 0, 16, False, 0, [], [])])
    assert batch.logit_S.shape == draws.row_S.shape == (0,)


def test_drawn_tokens_are_known_to_the_next_step() -> None:
    state = RowState(ROWS, MAX_LEN, 16)
    builder = BatchBuilder(ReferenceBackend(), state, 64)
    state.admit(_admit(3, [7, 8, 9], [5], prompt_tokens=2))
    state.append(np.array([3]), np.array([3]), np.array([42]))
    batch, _ = builder.build([Row(3, 3, 1, True, 0, [], [])])
    assert batch.token_T.tolist() == [42]
    prompt, output = state.prompt_and_output(3)
    assert (prompt.tolist(), output.tolist()) == ([7, 8], [9, 42])


def test_copy_on_write_replaces_the_last_block_of_a_table() -> None:
    state = RowState(ROWS, MAX_LEN, 16)
    state.admit(_admit(1, [0] * 40, [10, 11, 12]))
    state.extend_tables([Row(1, 39, 1, True, 2, [20], [])])
    assert state.table_RW[1, :3].tolist() == [10, 11, 20]


def test_a_row_may_be_used_again_and_remembers_nothing() -> None:
    state = RowState(ROWS, MAX_LEN, 16)
    state.admit(_admit(0, [1] * 50, [0, 1, 2, 3]))
    state.retire(0)
    state.admit(_admit(0, [2, 3], [9]))
    prompt, output = state.prompt_and_output(0)
    assert (prompt.tolist(), output.tolist()) == ([2, 3], [])


def test_a_plan_that_computes_unknown_tokens_is_caught() -> None:
    state = RowState(ROWS, MAX_LEN, 16)
    state.admit(_admit(0, [1, 2], [0]))
    with pytest.raises(AssertionError, match="nobody knows"):
        BatchBuilder(ReferenceBackend(), state, 64).build([Row(0, 1, 2, True, 0, [], [])])


def test_rows_cost_no_memory_before_they_are_used() -> None:
    """64 rows of 131072 tokens are 36 MB of arrays, of which a few (perhaps huge) pages are touched."""
    import psutil

    process = psutil.Process()
    before = process.memory_info().rss
    state = RowState(64, 131072, 16)
    state.admit(_admit(5, [1] * 1000, list(range(63))))
    assert state.token_RL.nbytes + state.table_RW.nbytes > 35e6
    assert process.memory_info().rss - before < 9e6
