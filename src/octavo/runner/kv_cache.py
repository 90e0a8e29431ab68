"""The KV cache's arrays: how large they are for a model (KVSpec) and their allocation. Which block holds what is the
block pool's business; what lies in a block is the backend's.
"""

from __future__ import annotations

import numpy as np

from octavo.core.kv_spec import KVSpec, LayerKV
from octavo.models.model import ModelFacts
from octavo.ops.backend import Backend, KVLayer


def kv_spec(facts: ModelFacts, block_size: int, dtype: str) -> KVSpec:
    """What a model keeps per token, in numbers of `dtype`."""
    layer = LayerKV(facts.kv_heads, facts.head_dim)
    return KVSpec((layer,) * facts.layers, block_size, np.dtype(dtype).itemsize)


def allocate_kv(backend: Backend, spec: KVSpec, blocks: int) -> list[KVLayer]:
    """Per layer keys and values [blocks, block size, kv heads, head dim]. Zeros, so that memory which was never
    written holds no NaN, and the system hands out pages when blocks are first used."""
    layers = []
    for layer in spec.layers:
        shape = (blocks, spec.block_size, layer.kv_heads, layer.head_dim)
        layers.append(KVLayer(backend.zeros(shape), backend.zeros(shape)))
    return layers
