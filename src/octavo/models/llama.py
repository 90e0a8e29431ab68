"""Llama: the dense decoder of Llama 2 to 3.2, Mistral, Qwen2, Qwen2.5, Qwen3 and SmolLM2. One forward structure;
which biases, norms, windows and rotations a checkpoint has is LlamaConfig's to say.

Shapes: T tokens in the step, S tokens whose logits are wanted, D hidden, V vocabulary.
"""

from __future__ import annotations

from typing import Any, Self

from octavo.checkpoint.source import WeightSource
from octavo.layers.attention import Attention, AttentionShape
from octavo.layers.linear import Linear
from octavo.layers.loader import Loader, Progress
from octavo.layers.mlp import GatedMLP
from octavo.layers.rope import Rope
from octavo.layers.scratch import Scratch
from octavo.models.llama_config import LlamaConfig
from octavo.ops.backend import Array, Backend, Batch, KVLayer

# In old checkpoints; computed from the config instead.
IGNORED = ("*.rotary_emb.inv_freq",)


class Block:
    """x += attention(norm(x)); x += mlp(norm(x)). `load` is scoped to the layer."""

    def __init__(
        self, config: LlamaConfig, layer: int, load: Loader, rope: Rope, scratch: Scratch, max_tokens: int
    ) -> None:
        shape = AttentionShape(
            hidden=config.hidden,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            qkv_bias=config.qkv_bias,
            out_bias=config.out_bias,
            qk_norm_eps=config.eps if config.qk_norm else None,
            window=config.windows[layer],
        )
        self.backend = load.backend
        self.scratch = scratch
        self.attention_norm = load.norm("input_layernorm", config.hidden, config.eps)
        self.attention = Attention(shape, load.scope("self_attn"), rope, scratch, max_tokens)
        self.mlp_norm = load.norm("post_attention_layernorm", config.hidden, config.eps)
        self.mlp = GatedMLP(
            config.hidden, config.feed_forward, load.scope("mlp"), scratch, max_tokens, bias=config.mlp_bias
        )

    def __call__(self, x_TD: Array, kv: KVLayer, batch: Batch) -> None:
        normed_TD = self.scratch.rows("normed", batch.tokens)
        change_TD = self.scratch.rows("change", batch.tokens)
        self.attention_norm(x_TD, normed_TD)
        self.attention(normed_TD, kv, batch, change_TD)
        self.backend.add(x_TD, change_TD, x_TD)
        self.mlp_norm(x_TD, normed_TD)
        self.mlp(normed_TD, change_TD)
        self.backend.add(x_TD, change_TD, x_TD)


class Llama:
    """Implements `models.model.Model`."""

    def __init__(
        self, config: LlamaConfig, load: Loader, *, max_tokens: int, max_logits: int, context_length: int
    ) -> None:
        """Pulls every weight through `load`. Call `allocate` when the load has proved sound, before `forward`."""
        self.kv_layers, self.kv_heads, self.head_dim = config.layers, config.kv_heads, config.head_dim
        self.context_length, self.vocab_size = context_length, config.vocab
        self.backend: Backend = load.backend
        self.scratch = scratch = Scratch(load.backend)
        for name in ("stream", "normed", "change"):
            scratch.reserve(name, max_tokens, config.hidden)
        scratch.reserve("last", max_logits, config.hidden)
        scratch.reserve("logits", max_logits, config.vocab)

        rope = Rope(load.backend, config.rotation, context_length)
        body = load.scope("model")
        self.embedding = body.matrix("embed_tokens.weight", config.vocab, config.hidden)
        self.blocks = [
            Block(config, layer, body.scope(f"layers.{layer}"), rope, scratch, max_tokens)
            for layer in range(config.layers)
        ]
        self.norm = body.norm("norm", config.hidden, config.eps)
        if config.tied:
            self.head = Linear(load.backend, self.embedding)
        else:
            self.head = load.linear(["lm_head"], [config.vocab], config.hidden)

    @classmethod
    def load(
        cls,
        config: dict[str, Any],
        source: WeightSource,
        backend: Backend,
        max_tokens: int,
        *,
        max_logits: int | None = None,
        context_length: int | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """See `models.model.Model.load`."""
        settings = LlamaConfig.from_hf(config)
        load = Loader(source, backend, progress)
        model = cls(
            settings,
            load,
            max_tokens=max_tokens,
            max_logits=max_logits or max_tokens,
            context_length=min(context_length or settings.context_length, settings.context_length),
        )
        load.finish(ignore=(*IGNORED, "lm_head.weight") if settings.tied else IGNORED)
        model.scratch.allocate()
        return model

    def forward(self, batch: Batch, kv: list[KVLayer]) -> Array:
        """See `models.model.Model.forward`."""
        backend, scratch = self.backend, self.scratch
        x_TD = scratch.rows("stream", batch.tokens)
        backend.embed(self.embedding, batch.token_T, x_TD)
        for block, layer_kv in zip(self.blocks, kv, strict=True):
            block(x_TD, layer_kv, batch)
        sampled = batch.logit_S.shape[0]
        last_SD = scratch.rows("last", sampled)
        backend.gather(x_TD, batch.logit_S, last_SD)
        self.norm(last_SD, last_SD)
        logits_SV = scratch.rows("logits", sampled)
        self.head(last_SD, logits_SV)
        return logits_SV
