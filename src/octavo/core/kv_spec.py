"""KVSpec: how many bytes a KV block takes and how many blocks fit. Arithmetic only; arrays are the runner's."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_SIZES = (8, 16, 32)
DEFAULT_BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class LayerKV:
    """What one layer keeps per token: a key and a value vector for each kv head."""

    kv_heads: int
    head_dim: int

    @property
    def values_per_token(self) -> int:
        return 2 * self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class KVSpec:
    """The cache layout of a whole model. `value_bytes` is the size of one stored number."""

    layers: tuple[LayerKV, ...]
    block_size: int
    value_bytes: int

    @property
    def bytes_per_token(self) -> int:
        return self.value_bytes * sum(layer.values_per_token for layer in self.layers)

    @property
    def bytes_per_block(self) -> int:
        return self.bytes_per_token * self.block_size

    def blocks_in(self, memory_bytes: int) -> int:
        """Whole blocks that fit into `memory_bytes`."""
        return max(0, memory_bytes // self.bytes_per_block)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold `tokens` tokens of one sequence."""
        return -(-tokens // self.block_size)
