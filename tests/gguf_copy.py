"""A tiny safetensors checkpoint written again as GGUF, the way llama.cpp's converter does, with the gguf package; also
quantised, in mixtures of formats that real files have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

from octavo.quant.formats import FORMATS

ARCHITECTURES = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen3": gguf.MODEL_ARCH.QWEN3}

# name -> (name in tiny_models.TINY, format by part of a tensor's GGUF name; "" for all others)
QUANTIZED: dict[str, tuple[str, dict[str, str]]] = {
    "llama-q4_1": ("llama-wide", {"": "q4_1", "token_embd": "q8_0", "output": "q8_0"}),
    # One merged weight holds two formats where values are kept better than queries and keys.
    "llama-q4_k": ("llama-wide", {"": "q4_k", "attn_v": "q6_k", "ffn_down": "q6_k", "output": "q6_k"}),
    "llama-mixed": ("llama-wide", {"": "q8_0", "attn_k": "bf16", "attn_v": "f16", "ffn_up": "q5_0", "output": "f32"}),
}

# Formats that the gguf package reads and does not write: where the scales of a block lie, and how large each is beside
# the first for codes to spread around zero.
_SCALES: dict[str, dict[int, float]] = {
    "q4_k": {0: 1.0, 2: 7.5},
    "q5_k": {0: 1.0, 2: 15.5},
    "q6_k": {208: 1.0},
}


def write_gguf_copy(directory: Path, path: Path, formats: Mapping[str, str] | None = None) -> Path:
    """All matrices of `directory` in bf16 or `formats` (see QUANTIZED), vectors in f32, at `path`, without a tokenizer.

    In formats that cannot be written, numbers are random and as large as those that they stand for.
    """
    formats = formats or {"": "bf16"}
    config = json.loads((directory / "config.json").read_text())
    arch = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    _write_metadata(writer, config)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    for shard in sorted(directory.glob("*.safetensors")):
        for name, stored in load_file(shard).items():
            tensor = _interleaved(name, stored.astype(np.float32), config)
            target = names.get_name(name, try_suffixes=(".weight", ".bias"))
            part = target.removesuffix(".weight").rpartition(".")[2]
            format = "f32" if tensor.ndim == 1 else formats.get(part, formats[""])
            kind = gguf.GGMLQuantizationType(FORMATS[format].ggml)
            stored = _random_blocks(format, tensor) if format in _SCALES else gguf.quantize(tensor, kind)
            writer.add_tensor(target, stored, raw_dtype=kind)
    rope = config["rope_parameters"]
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_divisors(rope, config["head_dim"]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _random_blocks(format: str, tensor: np.ndarray) -> np.ndarray:
    form = FORMATS[format]
    kind = gguf.GGMLQuantizationType(form.ggml)
    raw = np.random.default_rng(tensor.size).integers(0, 256, (len(tensor), form.row_bytes(tensor.shape[1])), np.uint8)

    def set_scales(size: float) -> None:
        for at, share in _SCALES[format].items():
            scale = np.float16(size * share).tobytes()
            raw.reshape(-1, form.block_bytes)[:, at : at + 2] = np.frombuffer(scale, np.uint8)

    set_scales(1.0)
    set_scales(tensor.std() / gguf.dequantize(raw, kind).std())
    return raw


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
