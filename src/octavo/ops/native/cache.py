"""NativeKV: the memory of one layer's KV cache. Its layout is native/isa/kv_layout.h's; here it is allocated, copied
block by block and, for tests and doctor, read back.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from octavo.ops.native import abi
from octavo.ops.native.library import load_library
from octavo.ops.native.memory import huge_memory

KV_DTYPES = {"auto": abi.KV_BF16, "bf16": abi.KV_BF16, "int8": abi.KV_INT8}


@dataclass(frozen=True, slots=True)
class NativeKV:
    """`memory` is uint8 [blocks, bytes per block], zero until written; pages are the system's until first used."""

    struct: abi.KV
    memory: np.ndarray

    @classmethod
    def allocate(cls, dtype: int, blocks: int, block_size: int, kv_heads: int, head_dim: int) -> NativeKV:
        block_bytes = load_library().octavo_kv_block_bytes(dtype, block_size, kv_heads, head_dim)
        memory = huge_memory(blocks * block_bytes).reshape(blocks, block_bytes)
        return cls(abi.KV(memory.ctypes.data, block_bytes, dtype, block_size, kv_heads, head_dim), memory)

    def copy(self, copies: list[tuple[int, int]]) -> None:
        for source, destination in copies:
            self.memory[destination] = self.memory[source]

    def read(self, slot_S: np.ndarray) -> np.ndarray:
        """Keys and values of the slots as float32 [2, S, K, H]."""
        shape = len(slot_S), self.struct.kv_heads, self.struct.head_dim
        read = np.empty((2, *shape), np.float32)
        slots = np.ascontiguousarray(slot_S, np.int32)
        load_library().octavo_kv_read(
            ctypes.byref(self.struct), slots.ctypes.data, len(slots), read[0].ctypes.data, read[1].ctypes.data
        )
        return read
