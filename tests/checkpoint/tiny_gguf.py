"""Writes small GGUF models with the gguf package, for tests of the reader and of everything that loads one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType


@dataclass(frozen=True)
class Tiny:
    """Sizes of a tiny Llama-structure model; the head dim is on purpose not hidden / heads."""

    arch: str = "llama"
    layers: int = 2
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    ffn: int = 96
    vocab: int = 48
    tied: bool = True
    qkv_bias: bool = False
    qk_norm: bool = False
    quant: GGMLQuantizationType = GGMLQuantizationType.F32


def tensors_of(tiny: Tiny, seed: int = 0) -> dict[str, np.ndarray]:
    """Random float32 tensors of the model by GGUF name."""
    rng = np.random.default_rng(seed)
    q, kv = tiny.heads * tiny.head_dim, tiny.kv_heads * tiny.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (tiny.vocab, tiny.hidden),
        "output_norm.weight": (tiny.hidden,),
    }
    if not tiny.tied:
        shapes["output.weight"] = (tiny.vocab, tiny.hidden)
    for layer in range(tiny.layers):
        rows = {"attn_q": (q, tiny.hidden), "attn_k": (kv, tiny.hidden), "attn_v": (kv, tiny.hidden)}
        rows |= {"attn_output": (tiny.hidden, q), "ffn_down": (tiny.hidden, tiny.ffn)}
        rows |= {"ffn_gate": (tiny.ffn, tiny.hidden), "ffn_up": (tiny.ffn, tiny.hidden)}
        vectors = {"attn_norm.weight": tiny.hidden, "ffn_norm.weight": tiny.hidden}
        if tiny.qkv_bias:
            vectors |= {"attn_q.bias": q, "attn_k.bias": kv, "attn_v.bias": kv}
        if tiny.qk_norm:
            vectors |= {"attn_q_norm.weight": tiny.head_dim, "attn_k_norm.weight": tiny.head_dim}
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in rows.items()}
        shapes |= {f"blk.{layer}.{name}": (length,) for name, length in vectors.items()}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write_gguf(
    path: Path,
    tiny: Tiny,
    tensors: dict[str, np.ndarray] | None = None,
    edit: Callable[[gguf.GGUFWriter], None] = lambda writer: None,
) -> Path:
    """Write the model to `path`; matrices in `tiny.quant`, vectors in float32. `edit` adds or replaces metadata."""
    writer = gguf.GGUFWriter(path, tiny.arch)
    writer.add_block_count(tiny.layers)
    writer.add_context_length(256)
    writer.add_embedding_length(tiny.hidden)
    writer.add_feed_forward_length(tiny.ffn)
    writer.add_head_count(tiny.heads)
    writer.add_head_count_kv(tiny.kv_heads)
    writer.add_key_length(tiny.head_dim)
    writer.add_value_length(tiny.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    edit(writer)
    for name, values in (tensors_of(tiny) if tensors is None else tensors).items():
        if values.ndim == 2:
            writer.add_tensor(name, gguf.quants.quantize(values, tiny.quant), raw_dtype=tiny.quant)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
