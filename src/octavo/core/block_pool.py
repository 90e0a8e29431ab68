"""BlockPool: who owns which KV block, and which blocks can be found again by their contents.

Owns reference counts, the free list in eviction order and the prefix index. It holds no KV data and knows no
sequences. Blocks are ints in range(total); every block is exactly one of referenced or free, and a free block
may still be *published*: findable until it is evicted to serve an allocation.

The prefix index is an exact chain: a full block is keyed by (node of the block before it, its own tokens), so
two different prefixes never collide and no hash is trusted. Node numbers are never reused, so a child whose
parent was evicted can no longer be found, and simply ages out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

Node = int | str  # chain node: a number, or the salt string where a chain starts
_Key = tuple[Node, tuple[int, ...]]


class BlockPool:
    """Fixed number of blocks of `block_size` tokens each. `caching=False` turns the prefix index off."""

    def __init__(self, total: int, block_size: int, *, caching: bool = True) -> None:
        if total < 1 or block_size < 1:
            raise ValueError(f"a pool needs at least one block of at least one token, got {total} x {block_size}")
        self.total = total
        self.block_size = block_size
        self.caching = caching
        self.evictions = 0
        self._refs = [0] * total
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(total))  # front is evicted first
        self._index: dict[_Key, int] = {}
        self._key: list[_Key | None] = [None] * total  # inverse of _index
        self._node = [-1] * total  # chain node of a published block
        self._next_node = 0
        self._cached = 0

    @property
    def free(self) -> int:
        """Blocks that nobody references; published ones among them are the prefix cache."""
        return len(self._free)

    @property
    def used(self) -> int:
        return self.total - len(self._free)

    @property
    def published(self) -> int:
        """Blocks that can be found by their contents, referenced or not."""
        return len(self._index)

    @property
    def cached(self) -> int:
        """Published blocks that nobody references."""
        return self._cached

    def refs(self, block: int) -> int:
        return self._refs[block]

    def node(self, block: int) -> Node:
        """Chain node of a published block."""
        assert self._key[block] is not None, f"block {block} is not published"
        return self._node[block]

    def match(self, salt: str, tokens: Sequence[int], limit: int) -> list[int]:
        """Published blocks that hold the longest run of full blocks within tokens[:limit]. No side effects."""
        found: list[int] = []
        size = self.block_size
        parent: Node = salt
        for start in range(0, limit - size + 1, size):
            block = self._index.get((parent, tuple(tokens[start : start + size])))
            if block is None:
                break
            found.append(block)
            parent = self._node[block]
        return found

    def idle(self, blocks: Iterable[int]) -> int:
        """How many of `blocks` nobody references: acquiring them would lower `free` by that many."""
        return sum(self._refs[block] == 0 for block in blocks)

    def acquire(self, blocks: Iterable[int]) -> None:
        """One more reference to each."""
        for block in blocks:
            if self._refs[block] == 0:
                del self._free[block]
                self._cached -= self._key[block] is not None
            self._refs[block] += 1

    def allocate(self, count: int) -> list[int] | None:
        """`count` blocks with one reference each and no contents, or None (and no change) if fewer are free."""
        if count > len(self._free):
            return None
        blocks = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in blocks:
            self._refs[block] = 1
            if self._key[block] is not None:
                self._unpublish(block)
                self._cached -= 1
                self.evictions += 1
        return blocks

    def release(self, blocks: Sequence[int]) -> None:
        """One reference less to each. `blocks` in table order: tails go free, and are evicted, before roots.

        A block without published contents is worth nothing, so it is reused before any cached one.
        """
        worthless: list[int] = []
        for block in reversed(blocks):
            refs = self._refs[block] = self._refs[block] - 1
            assert refs >= 0, f"block {block} released more often than acquired"
            if refs == 0:
                self._free[block] = None
                if self._key[block] is None:
                    worthless.append(block)
                else:
                    self._cached += 1
        for block in worthless:
            self._free.move_to_end(block, last=False)

    def publish(self, block: int, parent: Node, tokens: tuple[int, ...]) -> Node:
        """Make a full, computed block findable under `parent`; returns its chain node.

        Where equal contents are published already, that block stays the findable one, `block` stays private
        to its owners, and the existing node is returned, so that chains go on through it.
        """
        key = (parent, tokens)
        existing = self._index.get(key)
        if existing is not None:
            return self._node[existing]
        assert self._refs[block] > 0, f"block {block} is published but nobody references it"
        assert self._key[block] is None, f"block {block} is published under two keys"
        assert len(tokens) == self.block_size, f"block {block} is published with {len(tokens)} tokens"
        node = self._next_node
        self._next_node += 1
        self._index[key] = block
        self._key[block] = key
        self._node[block] = node
        return node

    def forget(self) -> None:
        """Drop the whole prefix index. Referenced blocks stay owned; nothing can be found any more."""
        for block in list(self._index.values()):
            self._unpublish(block)
        self._cached = 0

    def check(self) -> None:
        """Derive every fact again from first principles; AssertionError on any difference."""
        assert all(refs >= 0 for refs in self._refs), "negative reference count"
        unreferenced = {block for block, refs in enumerate(self._refs) if refs == 0}
        assert set(self._free) == unreferenced, f"free list differs from refs == 0: {set(self._free) ^ unreferenced}"
        inverse = {key: block for block, key in enumerate(self._key) if key is not None}
        assert inverse == self._index, "prefix index and its inverse differ"
        nodes = [self._node[block] for block in self._index.values()]
        assert len(set(nodes)) == len(nodes), "a chain node is used twice"
        assert all(0 <= node < self._next_node for node in nodes), "a chain node was never handed out"
        cached = sum(self._refs[block] == 0 for block in self._index.values())
        assert cached == self._cached, f"{cached} blocks are cached, {self._cached} are counted"
        if not self.caching:
            assert not self._index, "blocks are published although caching is off"

    def _unpublish(self, block: int) -> None:
        key = self._key[block]
        assert key is not None
        del self._index[key]
        self._key[block] = None
        self._node[block] = -1
