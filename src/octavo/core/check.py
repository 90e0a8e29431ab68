"""check(): derive every fact about a scheduler again from first principles. Called after every operation in
tests, and when the engine is idle under its debug flag.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from octavo.core.scheduler import Scheduler
from octavo.core.sequence import Sequence


def check(scheduler: Scheduler) -> None:
    """AssertionError naming the first fact that does not hold."""
    scheduler.pool.check()
    held = [s for s in scheduler.rows if s is not None]
    running, waiting = scheduler.running, scheduler.waiting
    for queue in (running, waiting):
        assert all(a.order < b.order for a, b in pairwise(queue)), "a queue is out of order"
    assert not set(running) & set(waiting), "a sequence both waits and runs"
    for sequence in waiting:
        _check_waiting(sequence)
    for sequence in running:
        assert not sequence.finished, "a finished sequence runs"
        assert sequence in held, "a running sequence has no row"
        _check_holding(scheduler, sequence)
    for sequence in held:
        assert scheduler.rows[sequence.row] is sequence, f"row {sequence.row} and its sequence disagree"
        if sequence.finished:
            assert sequence.in_flight > 0, "a finished sequence keeps its row with nothing in flight"
        else:
            assert sequence in running, "an unfinished sequence has a row but does not run"
    owners = Counter(block for s in held for block in s.blocks)
    for block in range(scheduler.pool.total):
        refs = scheduler.pool.refs(block)
        assert refs == owners[block], f"block {block} has {refs} references and {owners[block]} owners"
    useful, allocated = scheduler.occupancy()
    assert 0 <= useful <= allocated, f"{useful} useful slots of {allocated}"
    if not scheduler.unfinished and not held:
        assert scheduler.pool.free == scheduler.pool.total, "blocks leaked: nothing lives, yet some are not free"
        assert not running, "a sequence runs although no request is unfinished"
        assert not waiting, "a sequence waits although no request is unfinished"


def _check_waiting(sequence: Sequence) -> None:
    assert not sequence.finished, "a finished sequence waits"
    assert not sequence.blocks, "a waiting sequence owns blocks"
    assert sequence.row == -1, "a waiting sequence has a row"
    assert sequence.computed == sequence.in_flight == sequence.sampling == 0, "a waiting sequence has progress"
    assert not sequence.prefix, "a waiting sequence has a prefix chain"


def _check_holding(scheduler: Scheduler, sequence: Sequence) -> None:
    size = scheduler.pool.block_size
    blocks = sequence.blocks
    assert 0 <= sequence.computed <= len(sequence.tokens) + sequence.sampling, "computed beyond what is known"
    assert len(blocks) == -(-sequence.computed // size), "the block table does not cover computed tokens exactly"
    assert len(set(blocks)) == len(blocks), "a block stands twice in a table"
    assert len(sequence.prefix) <= sequence.computed // size, "the prefix chain is longer than what is computed"
    if scheduler.pool.caching and not sequence.in_flight:
        assert len(sequence.prefix) == sequence.computed // size, "a full, committed block is not on the prefix chain"
    assert 0 <= sequence.sampling <= sequence.in_flight, "more draws than steps in flight"
    assert sequence.generated + sequence.sampling <= sequence.max_new, "more is drawn than was asked for"
    assert sequence.computed < sequence.prompt_tokens + sequence.max_new, "the last token was fed back"
    assert sequence.hit < sequence.prompt_tokens, "a whole prompt was hit: no token is left to compute"
    assert sequence.hit % size == 0, "a hit ends inside a block"
