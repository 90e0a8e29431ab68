"""KVSpec: bytes per block and how many fit."""

from __future__ import annotations

from octavo.core.kv_spec import KVSpec, LayerKV


def test_bytes_add_up_over_unequal_layers() -> None:
    spec = KVSpec((LayerKV(3, 64, 12288), LayerKV(8, 128, 65536)), block_size=16)
    assert spec.bytes_per_block == 12288 + 65536
    assert spec.bytes_per_token == 2 * (2 * 3 * 64 + 2 * 8 * 128)


def test_only_whole_blocks_fit() -> None:
    spec = KVSpec((LayerKV(1, 4, 256),), block_size=8)
    assert spec.bytes_per_block == 256
    assert [spec.blocks_in(memory) for memory in (-1, 0, 255, 256, 1000)] == [0, 0, 0, 1, 3]


def test_tokens_take_whole_blocks() -> None:
    spec = KVSpec((LayerKV(1, 4, 256),), block_size=16)
    assert [spec.blocks_for(tokens) for tokens in (0, 1, 16, 17)] == [0, 1, 1, 2]
