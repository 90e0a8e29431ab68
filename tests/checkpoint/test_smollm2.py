"""The default model as it is: pulled through the store, its header read quickly, its tensors decoded like the gguf
package decodes them."""

from __future__ import annotations

import time
from pathlib import Path

import gguf
import numpy as np

from octavo.checkpoint.catalog import CATALOG, DEFAULT_MODEL
from octavo.checkpoint.gguf_file import GGUFFile
from octavo.checkpoint.open import open_checkpoint
from octavo.checkpoint.store import Store, default_store_dir
from octavo.quant.dequantize import dequantize


def test_the_store_lists_it(smollm2_path: Path) -> None:
    models = {model.name: model for model in Store(default_store_dir()).list()}
    assert models[DEFAULT_MODEL].path == smollm2_path
    assert smollm2_path.stat().st_size == CATALOG[DEFAULT_MODEL].file_bytes


def test_header_is_read_quickly(smollm2_path: Path) -> None:
    seconds = []
    for _ in range(3):
        start = time.process_time()
        with GGUFFile.open(smollm2_path) as file:
            seconds.append(time.process_time() - start)
            assert len(file.metadata["tokenizer.ggml.tokens"]) == 49152
    assert min(seconds) < 0.3


def test_config_and_tensors(smollm2_path: Path) -> None:
    source = open_checkpoint(smollm2_path)
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "vocab_size")
    assert [source.config[key] for key in sizes] == [30, 576, 9, 3, 49152]
    assert (len(source.names), source.total_bytes) == (272, 96_576_768)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(smollm2_path).tensors}
    pairs = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.layers.29.mlp.down_proj.weight": "blk.29.ffn_down.weight",
    }
    for name, gguf_name in pairs.items():
        stored = tensors[gguf_name]
        expected = gguf.quants.dequantize(stored.data, stored.tensor_type)
        np.testing.assert_array_equal(dequantize(source.tensor(name)), expected)
    source.close()
