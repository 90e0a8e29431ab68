"""BlockPool against a naive model under random operations: a dict of owners, a shadow of what was written to each
block, and the time when each block came free. Holds the pool's invariants P1-P8 after every operation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octavo.core.block_pool import BlockPool, Node

SIZE = 2
SALTS = ("", "other")
tokens_lists = st.lists(st.integers(0, 1), min_size=1, max_size=9)  # two tokens only: prefixes collide all the time


@dataclass
class Owner:
    """What a sequence would hold."""

    salt: str
    tokens: list[int]
    blocks: list[int]
    chain: list[Node] = field(default_factory=list)


class PoolMachine(RuleBasedStateMachine):
    @initialize(total=st.integers(1, 12))
    def start(self, total: int) -> None:
        self.pool = BlockPool(total, SIZE)
        self.owners: list[Owner] = []
        self.shadow: dict[int, tuple[str, tuple[int, ...]]] = {}  # block -> (salt, all tokens up to its end)
        self.published: dict[int, tuple[Node, tuple[int, ...], int]] = {}  # node -> (parent, tokens, block)
        self.nodes_seen: set[int] = set()
        self.freed_at: dict[int, int] = {}
        self.time = 0

    # --- the model's own view ---

    def holders(self, block: int) -> int:
        return sum(owner.blocks.count(block) for owner in self.owners)

    def free_blocks(self) -> set[int]:
        return {block for block in range(self.pool.total) if not self.holders(block)}

    def cached_blocks(self) -> set[int]:
        return {block for _, _, block in self.published.values()} & self.free_blocks()

    def walk(self, salt: str, tokens: list[int], limit: int) -> list[int]:
        """What match() must find, by scanning."""
        found: list[int] = []
        parent: Node = salt
        for start in range(0, limit - SIZE + 1, SIZE):
            wanted = (parent, tuple(tokens[start : start + SIZE]))
            for node, (above, held, block) in self.published.items():
                if (above, held) == wanted:
                    found.append(block)
                    parent = node
                    break
            else:
                break
        return found

    def take(self, count: int) -> list[int] | None:
        """allocate(), checked: all or nothing, never an owned block, unpublished first, then the oldest cached."""
        free, cached = self.free_blocks(), self.cached_blocks()
        blocks = self.pool.allocate(count)
        if count > len(free):
            assert blocks is None
            return None
        assert blocks is not None
        assert len(set(blocks)) == len(blocks) == count
        assert set(blocks) <= free
        evicted = [block for block in blocks if block in cached]
        assert len(evicted) == max(0, count - len(free - cached))
        oldest_first = sorted(cached, key=self.freed_at.__getitem__)
        assert evicted == oldest_first[: len(evicted)]
        for node in [node for node, (_, _, block) in self.published.items() if block in evicted]:
            del self.published[node]
        for block in blocks:
            self.shadow.pop(block, None)
        return blocks

    def write(self, owner: Owner) -> None:
        for index, block in enumerate(owner.blocks):
            if self.holders(block) == 1:
                self.shadow[block] = (owner.salt, tuple(owner.tokens[: (index + 1) * SIZE]))

    # --- operations ---

    @rule(salt=st.sampled_from(SALTS), tokens=tokens_lists)
    def admit(self, salt: str, tokens: list[int]) -> None:
        limit = len(tokens) - 1
        before = self.pool.free
        hit = self.pool.match(salt, tokens, limit)
        assert hit == self.walk(salt, tokens, limit)
        assert len(hit) * SIZE <= limit
        for index, block in enumerate(hit):
            assert self.shadow[block] == (salt, tuple(tokens[: (index + 1) * SIZE])), "a hit holds something else"
        assert self.pool.idle(hit) == len(set(hit) & self.free_blocks())
        assert self.pool.free == before, "match has a side effect"
        self.pool.acquire(hit)
        owner = Owner(salt, tokens, list(hit), [self.pool.node(block) for block in hit])
        self.owners.append(owner)
        missing = self.take(-(-len(tokens) // SIZE) - len(hit))
        if missing is None:
            self.drop(owner)
        else:
            owner.blocks += missing
            self.write(owner)

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), more=tokens_lists)
    def grow(self, data: st.DataObject, more: list[int]) -> None:
        owner = data.draw(st.sampled_from(self.owners))
        if len(owner.tokens) % SIZE and self.holders(owner.blocks[-1]) > 1:
            return  # the scheduler would copy first
        blocks = self.take(-(-(len(owner.tokens) + len(more)) // SIZE) - len(owner.blocks))
        if blocks is not None:
            owner.tokens = owner.tokens + more
            owner.blocks += blocks
            self.write(owner)

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def publish_next(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(self.owners))
        index = len(owner.chain)
        if (index + 1) * SIZE > len(owner.tokens):
            return
        block = owner.blocks[index]
        parent: Node = owner.chain[-1] if owner.chain else owner.salt
        tokens = tuple(owner.tokens[index * SIZE : (index + 1) * SIZE])
        live = [node for node, entry in self.published.items() if entry[:2] == (parent, tokens)]
        if not live and any(entry[2] == block for entry in self.published.values()):
            return  # the block is published on another owner's chain, whose parent was a duplicate
        node = self.pool.publish(block, parent, tokens)
        assert isinstance(node, int)
        if live:
            assert [node] == live, "equal contents got two nodes"
        else:
            assert node not in self.nodes_seen, "a node number returned"
            self.nodes_seen.add(node)
            self.published[node] = (parent, tokens, block)
        owner.chain.append(node)

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(self.owners))
        self.pool.acquire(owner.blocks)
        self.owners.append(Owner(owner.salt, list(owner.tokens), list(owner.blocks), list(owner.chain)))

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.drop(data.draw(st.sampled_from(self.owners)))

    def drop(self, owner: Owner) -> None:
        self.pool.release(owner.blocks)
        self.owners.remove(owner)
        for block in reversed(owner.blocks):  # tails come free before roots
            if not self.holders(block):
                self.time += 1
                self.freed_at[block] = self.time

    @rule()
    def forget(self) -> None:
        self.pool.forget()
        self.published.clear()

    # --- what always holds ---

    @invariant()
    def derived_facts_hold(self) -> None:
        pool = self.pool
        pool.check()
        assert [pool.refs(block) for block in range(pool.total)] == [self.holders(b) for b in range(pool.total)]
        assert pool.free == len(self.free_blocks())
        assert pool.used + pool.free == pool.total
        assert pool.cached == len(self.cached_blocks())
        assert pool.published == len(self.published)

    def teardown(self) -> None:
        for owner in list(getattr(self, "owners", ())):
            self.drop(owner)
        if hasattr(self, "pool"):
            self.pool.check()
            assert self.pool.free == self.pool.total
            for salt, tokens in set(self.shadow.values()):
                found = self.pool.match(salt, tokens, len(tokens))
                assert found == self.walk(salt, list(tokens), len(tokens)), "a hit does not outlive its owners"


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
