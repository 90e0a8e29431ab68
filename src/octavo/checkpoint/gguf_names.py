"""Tensor names: from GGUF's to Hugging Face's. One table serves all dense Llama-structure models.

Source of the left side: the tensor names of the GGUF specification (gguf.constants.TENSOR_NAMES).
"""

from __future__ import annotations

import re

# Outside the layers. `rope_freqs.weight` has no counterpart: it becomes part of the config.
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}

# blk.N.<left>.{weight,bias} is model.layers.N.<right>.{weight,bias}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

LAYER_TENSOR = re.compile(r"blk\.(\d{1,9})\.(\w+)\.(weight|bias)")


def hugging_face_name(gguf_name: str) -> str:
    """The Hugging Face name; a name that no table knows is returned as it is, for the loader to report."""
    if gguf_name in TOP_NAMES:
        return TOP_NAMES[gguf_name]
    match = LAYER_TENSOR.fullmatch(gguf_name)
    if match is None or match[2] not in LAYER_NAMES:
        return gguf_name
    return f"model.layers.{int(match[1])}.{LAYER_NAMES[match[2]]}.{match[3]}"
