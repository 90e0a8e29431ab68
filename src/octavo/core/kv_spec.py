"""KVSpec: how many bytes a KV block takes and how many blocks fit. Arithmetic only; arrays are the runner's."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_SIZES = (8, 16, 32)
DEFAULT_BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class LayerKV:
    """What one layer keeps per token: a key and a value vector for each kv head. `block_bytes` is what a block of them
    takes in the layout of whoever stores it."""

    kv_heads: int
    head_dim: int
    block_bytes: int


@dataclass(frozen=True, slots=True)
class KVSpec:
    """The cache layout of a whole model."""

    layers: tuple[LayerKV, ...]
    block_size: int

    @property
    def bytes_per_block(self) -> int:
        return sum(layer.block_bytes for layer in self.layers)

    @property
    def bytes_per_token(self) -> int:
        return self.bytes_per_block // self.block_size

    def blocks_in(self, memory_bytes: int) -> int:
        """Whole blocks that fit into `memory_bytes`."""
        return max(0, memory_bytes // self.bytes_per_block)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold `tokens` tokens of one sequence."""
        return -(-tokens // self.block_size)
