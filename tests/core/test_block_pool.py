"""BlockPool, rule by rule."""

from __future__ import annotations

import pytest

from octavo.core.block_pool import BlockPool


def filled(pool: BlockPool, tokens: list[int], salt: str = "") -> list[int]:
    """Blocks that hold `tokens`, published, with one reference each."""
    blocks = pool.allocate(len(tokens) // pool.block_size)
    assert blocks is not None
    parent: int | str = salt
    for index, block in enumerate(blocks):
        parent = pool.publish(block, parent, tuple(tokens[index * pool.block_size : (index + 1) * pool.block_size]))
    return blocks


def test_blocks_are_found_again_after_their_owner_is_gone() -> None:
    pool = BlockPool(4, 4)
    blocks = filled(pool, list(range(12)))
    pool.release(blocks)
    assert pool.free == 4
    assert pool.cached == 3
    assert pool.match("", list(range(12)), 12) == blocks
    assert pool.match("", list(range(12)), 11) == blocks[:2], "only full blocks within the limit are found"
    assert pool.match("", [*range(8), 99, 99, 99, 99], 12) == blocks[:2]
    assert pool.match("someone else", list(range(12)), 12) == []


def test_tails_are_evicted_before_roots() -> None:
    pool = BlockPool(3, 4)
    root, middle, tail = filled(pool, list(range(12)))
    pool.release([root, middle, tail])
    assert pool.allocate(1) == [tail]
    assert pool.match("", list(range(12)), 12) == [root, middle]
    assert pool.allocate(1) == [middle]
    assert pool.match("", list(range(12)), 12) == [root]
    assert pool.evictions == 2


def test_the_least_recently_used_chain_is_evicted_first() -> None:
    pool = BlockPool(4, 4)
    old = filled(pool, [1] * 8)
    new = filled(pool, [2] * 8)
    pool.release(old)
    pool.release(new)
    pool.acquire(pool.match("", [1] * 8, 8))
    pool.release(old)
    assert pool.allocate(2) == new[::-1]
    assert pool.match("", [1] * 8, 8) == old


def test_blocks_without_contents_are_reused_before_cached_ones() -> None:
    pool = BlockPool(4, 4)
    cached = filled(pool, list(range(8)))
    scratch = pool.allocate(2)
    assert scratch is not None
    pool.release(cached)
    pool.release(scratch)
    assert sorted(pool.allocate(2) or []) == sorted(scratch)
    assert pool.evictions == 0


def test_allocation_is_all_or_nothing() -> None:
    pool = BlockPool(3, 4)
    assert pool.allocate(4) is None
    assert pool.free == 3
    assert pool.allocate(0) == []
    assert len(pool.allocate(3) or []) == 3
    assert pool.allocate(1) is None


def test_a_shared_block_is_free_only_when_its_last_owner_lets_go() -> None:
    pool = BlockPool(2, 4)
    blocks = filled(pool, list(range(8)))
    pool.acquire(blocks)
    pool.release(blocks)
    assert pool.free == 0
    pool.release(blocks)
    assert pool.free == 2
    with pytest.raises(AssertionError, match="released more often than acquired"):
        pool.release(blocks)


def test_equal_contents_keep_one_findable_block_and_one_chain() -> None:
    pool = BlockPool(4, 4)
    first = filled(pool, list(range(8)))
    twin = pool.allocate(2)
    assert twin is not None
    node = pool.publish(twin[0], "", (0, 1, 2, 3))
    assert node == pool.node(first[0])
    assert pool.publish(twin[1], node, (4, 5, 6, 7)) == pool.node(first[1])
    pool.release(twin)
    assert pool.cached == 0, "the twin holds nothing that can be found"
    assert pool.match("", list(range(8)), 8) == first


def test_a_child_of_an_evicted_parent_is_never_found_again() -> None:
    pool = BlockPool(3, 4)
    parent, child = filled(pool, list(range(8)))
    pool.release([parent])  # the root comes free before its tail, as after a fork
    assert len(pool.allocate(2) or []) == 2, "one block was unused, the other held the parent"
    again = pool.match("", list(range(8)), 8)
    assert again == []
    pool.release([child])
    fresh = pool.allocate(1)
    assert fresh == [child]
    pool.publish(child, "", (0, 1, 2, 3))  # the parent's contents once more: a new node
    assert pool.match("", list(range(8)), 8) == [child]


def test_the_same_tokens_under_another_prefix_are_another_block() -> None:
    pool = BlockPool(4, 2)
    first = filled(pool, [1, 1, 5, 5])
    second = filled(pool, [2, 2, 5, 5])
    assert pool.published == 4
    assert pool.match("", [1, 1, 5, 5], 4) == first
    assert pool.match("", [2, 2, 5, 5], 4) == second


def test_forget_drops_what_can_be_found_and_leaves_owners_alone() -> None:
    pool = BlockPool(4, 4)
    held = filled(pool, list(range(8)))
    pool.release(filled(pool, [9] * 4))
    pool.forget()
    pool.check()
    assert pool.published == pool.cached == 0
    assert pool.match("", list(range(8)), 8) == []
    pool.release(held)
    assert pool.free == 4


@pytest.mark.parametrize(("total", "size"), [(0, 16), (-1, 16), (4, 0)])
def test_a_pool_of_nothing_is_refused(total: int, size: int) -> None:
    with pytest.raises(ValueError, match="at least one block"):
        BlockPool(total, size)


def test_check_notices_a_lost_block() -> None:
    pool = BlockPool(2, 4)
    blocks = pool.allocate(1)
    assert blocks is not None
    pool._refs[blocks[0]] = 0
    with pytest.raises(AssertionError, match="free list differs"):
        pool.check()
