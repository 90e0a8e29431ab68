"""GGUF metadata of a dense Llama-structure model, mapped to the keys of a Hugging Face `config.json`.

Decides which GGUF architectures are supported. Source: the "LLM" key tables of the GGUF specification.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from octavo.checkpoint.gguf_file import GGUFFile
from octavo.errors import CheckpointError, UnsupportedModel

# GGUF architecture -> (model_type, class in `architectures`). Mistral and SmolLM2 files say "llama".
ARCHITECTURES = {
    "llama": ("llama", "LlamaForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
}

EMBEDDING = "token_embd.weight"
HEAD = "output.weight"
ROPE_FACTORS = "rope_freqs.weight"

FLOAT32 = struct.Struct("<f")
FLOAT32_MAX = 3.4e38

# Rope options that change the result and that the mapping to Hugging Face's keys cannot express.
UNMAPPED_ROPE = ("alpha", "attn_factor", "yarn_ext_factor", "yarn_attn_factor", "yarn_log_multiplier")


class _Keys:
    """Typed reads of one file's metadata; `{arch}.` is put before a key that starts with a dot."""

    def __init__(self, file: GGUFFile) -> None:
        self.file = file
        arch = file.metadata.get("general.architecture")
        if not isinstance(arch, str):
            raise CheckpointError(f"{file.path}: metadata 'general.architecture' is missing or no string")
        self.arch = arch

    def get(self, key: str) -> Any:
        return self.file.metadata.get(self.arch + key if key.startswith(".") else key)

    def whole(self, key: str, default: int | None = None, low: int = 1) -> int:
        value = self._present(key, default)
        if type(value) is not int or not low <= value < 2**31:
            raise self.fault(key, f"must be a whole number of at least {low}, got {_brief(value)}")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """A positive finite number."""
        value = self._present(key, default)
        if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
            raise self.fault(key, f"must be a positive number, got {_brief(value)}")
        return _shortest(float(value))

    def fault(self, key: str, what: str) -> CheckpointError:
        return CheckpointError(f"{self.file.path}: metadata '{self.arch + key if key[0] == '.' else key}' {what}")

    def _present(self, key: str, default: Any) -> Any:
        value = self.get(key)
        if value is None:
            value = default
        if value is None:
            raise self.fault(key, "is missing")
        return value


def hugging_face_config(file: GGUFFile) -> dict[str, Any]:
    """The config of the model in `file`.

    Beyond Hugging Face's own keys: a llama3 `rope_scaling` carries `frequency_factors`, the per-pair divisors
    of the inverse frequencies that GGUF stores instead of the four numbers from which they were computed.
    UnsupportedModel for an architecture or variant that is not served; CheckpointError for contradictions.
    """
    keys = _Keys(file)
    if keys.arch not in ARCHITECTURES:
        raise UnsupportedModel(
            f"{file.path}: GGUF architecture '{keys.arch}' is not supported; supported are {', '.join(ARCHITECTURES)}"
        )
    model_type, class_name = ARCHITECTURES[keys.arch]
    window = keys.get(".attention.sliding_window")
    if keys.arch == "llama" and window:
        model_type, class_name = "mistral", "MistralForCausalLM"
    if keys.get(".expert_count"):
        raise UnsupportedModel(
            f"{file.path}: mixture-of-experts models of architecture '{keys.arch}' are not supported"
        )
    config: dict[str, Any] = {"model_type": model_type, "architectures": [class_name], "hidden_act": "silu"}
    config |= _sizes(keys) | _attention(keys) | _rope(keys) | _special_tokens(keys)
    if window:
        config["sliding_window"] = keys.whole(".attention.sliding_window")
    return config


def _sizes(keys: _Keys) -> dict[str, Any]:
    hidden, layers = keys.whole(".embedding_length"), keys.whole(".block_count")
    embedding = keys.file.tensors.get(EMBEDDING)
    if embedding is None or len(embedding.shape) != 2 or embedding.shape[1] != hidden:
        shape = "absent" if embedding is None else f"of shape {list(embedding.shape)}"
        raise CheckpointError(f"{keys.file.path}: tensor '{EMBEDDING}' is {shape}; wanted [vocabulary, {hidden}]")
    last = f"blk.{layers - 1}.attn_norm.weight"
    if last not in keys.file.tensors:
        raise keys.fault(".block_count", f"says {layers} layers, but there is no tensor '{last}'")
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": keys.whole(".feed_forward_length"),
        "vocab_size": embedding.shape[0],
        "max_position_embeddings": keys.whole(".context_length"),
        "rms_norm_eps": keys.real(".attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": HEAD not in keys.file.tensors,
        "mlp_bias": "blk.0.ffn_down.bias" in keys.file.tensors,
    }


def _attention(keys: _Keys) -> dict[str, Any]:
    heads = keys.whole(".attention.head_count")
    kv_heads = keys.whole(".attention.head_count_kv", heads)
    if heads % kv_heads:
        raise keys.fault(".attention.head_count", f"({heads}) is no multiple of the {kv_heads} kv heads")
    head_dim = keys.whole(".attention.key_length", keys.whole(".embedding_length") // heads)
    for key in (".attention.value_length", ".rope.dimension_count"):
        if keys.whole(key, head_dim) != head_dim:
            raise UnsupportedModel(f"{keys.file.path}: '{keys.arch}{key}' differs from the head dim {head_dim}")
    return {
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "attention_bias": "blk.0.attn_q.bias" in keys.file.tensors,
    }


def _rope(keys: _Keys) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_theta": keys.real(".rope.freq_base", 10000.0)}
    kind = keys.get(".rope.scaling.type") or ("linear" if keys.get(".rope.scale_linear") else "none")
    unmapped = [key for key in UNMAPPED_ROPE if keys.get(f".rope.scaling.{key}") is not None]
    if kind not in ("none", "linear", "yarn") or unmapped:
        raise UnsupportedModel(
            f"{keys.file.path}: rope scaling {_brief(kind)} {' '.join(unmapped)} is not supported; "
            "supported are none, linear, yarn and llama3's frequency factors"
        )
    if ROPE_FACTORS in keys.file.tensors:
        rope["rope_scaling"] = {"rope_type": "llama3", "frequency_factors": _frequency_factors(keys)}
    elif kind == "linear":
        factor = keys.real(".rope.scaling.factor", keys.get(".rope.scale_linear"))
        rope["rope_scaling"] = {"rope_type": "linear", "factor": factor}
    elif kind == "yarn":
        rope["rope_scaling"] = {
            "rope_type": "yarn",
            "factor": keys.real(".rope.scaling.factor"),
            "original_max_position_embeddings": keys.whole(".rope.scaling.original_context_length"),
            "beta_fast": keys.real(".rope.scaling.yarn_beta_fast", 32.0),
            "beta_slow": keys.real(".rope.scaling.yarn_beta_slow", 1.0),
        }
    return rope


def _frequency_factors(keys: _Keys) -> list[float]:
    tensor = keys.file.tensors[ROPE_FACTORS]
    pairs = _attention(keys)["head_dim"] // 2
    if tensor.format.name != "f32" or tensor.shape != (pairs,):
        raise CheckpointError(f"{keys.file.path}: tensor '{ROPE_FACTORS}' must be f32 of shape [{pairs}]")
    factors = [float(factor) for factor in keys.file.view(tensor).cast("f")]
    if not all(math.isfinite(f) and f > 0 for f in factors):
        raise CheckpointError(f"{keys.file.path}: tensor '{ROPE_FACTORS}' holds values that are not positive")
    return factors


def _special_tokens(keys: _Keys) -> dict[str, Any]:
    """`eos_token_id` is a list when the file also names an end-of-turn or end-of-message token."""
    ids: dict[str, Any] = {}
    if keys.get("tokenizer.ggml.bos_token_id") is not None:
        ids["bos_token_id"] = keys.whole("tokenizer.ggml.bos_token_id", low=0)
    names = [f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom")]
    ends = list(dict.fromkeys(keys.whole(name, low=0) for name in names if keys.get(name) is not None))
    if ends:
        ids["eos_token_id"] = ends[0] if len(ends) == 1 else ends
    return ids


def _shortest(value: float) -> float:
    """Files hold float32, so 1e-5 reads as 9.99999975e-06: the shortest decimal that float32 rounds to `value`."""
    for digits in range(1, 9):
        short = float(f"{value:.{digits}g}")
        if short < FLOAT32_MAX and FLOAT32.unpack(FLOAT32.pack(short))[0] == value:
            return short
    return value


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
