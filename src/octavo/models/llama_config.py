"""LlamaConfig: the dense Llama structure's sizes and options, read from a Hugging Face config and validated. Families
differ here and nowhere else: the forward pass in `llama.py` sees values, not names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.errors import CheckpointError, UnsupportedModel
from octavo.layers.config_keys import ConfigKeys
from octavo.layers.rope_scaling import Rotation, rotation_from_config
from octavo.models.model import ModelFacts

MAX_LAYERS = 1024
ACTIVATIONS = ("silu", "swish")


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Biases: on q, k, v (`qkv_bias`), on the attention output (`out_bias`), on the feed-forward (`mlp_bias`).

    `qk_norm` normalises each query and key head before rope. `tied`: the head is the embedding matrix.
    `windows` gives per layer how many positions a query sees, None for all.
    """

    vocab: int
    hidden: int
    feed_forward: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    tied: bool
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    qk_norm: bool
    windows: tuple[int | None, ...]
    rotation: Rotation

    @property
    def context_length(self) -> int:
        return self.rotation.context_length

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> LlamaConfig:
        """CheckpointError for missing, mistyped or contradictory keys, UnsupportedModel for unserved options."""
        keys = ConfigKeys(config)
        family = keys.text("model_type", "llama")
        activation = keys.text("hidden_act", "silu")
        if activation not in ACTIVATIONS:
            raise UnsupportedModel(f"hidden_act {activation!r} is not supported; supported: {', '.join(ACTIVATIONS)}")
        hidden, layers = keys.whole("hidden_size"), keys.whole("num_hidden_layers", high=MAX_LAYERS)
        heads, kv_heads, head_dim = _head_sizes(keys, family, hidden)
        attention_bias = family in ("llama", "qwen3") and keys.flag("attention_bias", False)
        return cls(
            vocab=keys.whole("vocab_size"),
            hidden=hidden,
            feed_forward=keys.whole("intermediate_size"),
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            eps=keys.real("rms_norm_eps", 1e-6),
            tied=keys.flag("tie_word_embeddings", False),
            qkv_bias=attention_bias or family == "qwen2",
            out_bias=attention_bias,
            mlp_bias=family == "llama" and keys.flag("mlp_bias", False),
            qk_norm=family == "qwen3",
            windows=_windows(keys, family, layers),
            rotation=rotation_from_config(keys, head_dim),
        )

    @property
    def facts(self) -> ModelFacts:
        q_width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        merged = q_width + 2 * kv_width
        attention = self.hidden * (merged + q_width) + self.qkv_bias * merged + self.out_bias * self.hidden
        attention += self.qk_norm * 2 * self.head_dim
        mlp = 3 * self.hidden * self.feed_forward + self.mlp_bias * (2 * self.feed_forward + self.hidden)
        matrices = self.vocab * self.hidden * (1 if self.tied else 2)
        return ModelFacts(
            layers=self.layers,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            windows=self.windows,
            context_length=self.context_length,
            vocab_size=self.vocab,
            parameters=matrices + self.hidden + self.layers * (attention + mlp + 2 * self.hidden),
            scratch_per_token=3 * self.hidden + merged + q_width + 3 * self.feed_forward,
        )


def _head_sizes(keys: ConfigKeys, family: str, hidden: int) -> tuple[int, int, int]:
    """Query heads, kv heads and head dim, with the families' defaults for what is not written down."""
    heads: int = keys.whole("num_attention_heads")
    kv_heads: int = keys.whole("num_key_value_heads", heads)
    if heads % kv_heads:
        raise CheckpointError(f"num_attention_heads ({heads}) is not a multiple of num_key_value_heads ({kv_heads})")
    default = 128 if family == "qwen3" else hidden // heads
    if "head_dim" not in keys and family != "qwen3" and hidden % heads:
        raise CheckpointError(f"hidden_size ({hidden}) is not a multiple of num_attention_heads ({heads})")
    return heads, kv_heads, keys.whole("head_dim", default)


def _windows(keys: ConfigKeys, family: str, layers: int) -> tuple[int | None, ...]:
    """Mistral: one window for all layers. Qwen: for the layers from max_window_layers on, or as layer_types says."""
    if family == "mistral":
        window = keys.whole("sliding_window", None if keys.given("sliding_window") else 4096)
        return (window,) * layers
    if family not in ("qwen2", "qwen3") or not keys.flag("use_sliding_window", False):
        return (None,) * layers
    window = keys.whole("sliding_window", None if keys.given("sliding_window") else 4096)
    types = keys.texts("layer_types")
    if not types:
        full = keys.whole("max_window_layers", 28, low=0)
        return tuple(window if layer >= full else None for layer in range(layers))
    unknown = set(types) - {"full_attention", "sliding_attention"}
    if unknown or len(types) != layers:
        raise UnsupportedModel(f"layer_types must name full_attention or sliding_attention for {layers} layers")
    return tuple(window if kind == "sliding_attention" else None for kind in types)
