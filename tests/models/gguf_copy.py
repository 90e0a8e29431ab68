"""A tiny safetensors checkpoint written again as GGUF, the way llama.cpp's converter does, with the gguf package."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

ARCHITECTURES = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen3": gguf.MODEL_ARCH.QWEN3}


def write_gguf_copy(directory: Path, path: Path) -> Path:
    """All tensors of `directory` in bf16 (vectors in f32) at `path`, without a tokenizer."""
    config = json.loads((directory / "config.json").read_text())
    arch = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    _write_metadata(writer, config)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    for shard in sorted(directory.glob("*.safetensors")):
        for name, stored in load_file(shard).items():
            tensor = _interleaved(name, stored.astype(np.float32), config)
            kind = gguf.GGMLQuantizationType.F32 if tensor.ndim == 1 else gguf.GGMLQuantizationType.BF16
            target = names.get_name(name, try_suffixes=(".weight", ".bias"))
            writer.add_tensor(target, gguf.quantize(tensor, kind), raw_dtype=kind)
    rope = config["rope_parameters"]
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_divisors(rope, config["head_dim"]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_metadata(writer: gguf.GGUFWriter, config: dict) -> None:
    head_dim = config["head_dim"]
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _interleaved(name: str, tensor: np.ndarray, config: dict) -> np.ndarray:
    """llama files keep the two halves of each rotary pair side by side."""
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}.get(name.split(".")[-2])
    if heads is None or config["model_type"] != "llama":
        return tensor
    halves = tensor.reshape(heads, 2, config["head_dim"] // 2, *tensor.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(tensor.shape)


def _llama3_divisors(rope: dict, head_dim: int) -> np.ndarray:
    """The converter's formula, over wave lengths as Llama 3.1's reference code has it."""
    divisors = []
    for pair in range(head_dim // 2):
        wave = 2 * np.pi * rope["rope_theta"] ** (2 * pair / head_dim)
        longest = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
        shortest = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
        if wave < shortest:
            divisors.append(1.0)
        elif wave > longest:
            divisors.append(rope["factor"])
        else:
            smooth = rope["original_max_position_embeddings"] / wave - rope["low_freq_factor"]
            smooth /= rope["high_freq_factor"] - rope["low_freq_factor"]
            divisors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(divisors, np.float32)
