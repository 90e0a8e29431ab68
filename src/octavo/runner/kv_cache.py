"""The KV cache's arrays: how large they are for a model (KVSpec) and their allocation. Which block holds what is the
block pool's business; what lies in a block is the backend's.
"""

from __future__ import annotations

from octavo.core.kv_spec import KVSpec, LayerKV
from octavo.models.model import ModelFacts
from octavo.ops.backend import Backend, KVLayer


def kv_spec(facts: ModelFacts, block_size: int, backend: Backend) -> KVSpec:
    """What a model keeps, in the layout of `backend`."""
    block_bytes = backend.kv_block_bytes(block_size, facts.kv_heads, facts.head_dim)
    return KVSpec((LayerKV(facts.kv_heads, facts.head_dim, block_bytes),) * facts.layers, block_size)


def allocate_kv(backend: Backend, spec: KVSpec, blocks: int) -> list[KVLayer]:
    """One cache per layer."""
    return [backend.allocate_kv(blocks, spec.block_size, layer.kv_heads, layer.head_dim) for layer in spec.layers]
