"""Tiny random checkpoints of every served family, made with transformers: two or three layers, awkward sizes, weights
large enough that logits differ clearly. Deterministic. With a byte-level tokenizer and a chat template, so that they
can be served. torch and transformers are imported only when a checkpoint is made.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = (("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"))
VOCABULARY = 256 + len(MERGES) + len(SPECIAL_TOKENS)  # 263, a prime
EOS = VOCABULARY - 1  # <|im_end|>
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_COMMON = {
    "vocab_size": VOCABULARY,
    "num_hidden_layers": 3,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": EOS,
    "pad_token_id": EOS,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_YARN = {"rope_type": "yarn", "rope_theta": 700.0, "factor": 4.0, "original_max_position_embeddings": 64}

# name -> (transformers config class, stored dtype, config)
TINY: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": (
        "LlamaConfig",
        "bfloat16",
        {"hidden_size": 48, "intermediate_size": 80, "num_attention_heads": 6, "num_key_value_heads": 2}
        | {"head_dim": 16, "rope_parameters": _LLAMA3},
    ),
    "llama-biased": (
        "LlamaConfig",
        "float16",
        {"hidden_size": 40, "intermediate_size": 52, "num_attention_heads": 4, "num_key_value_heads": 1}
        | {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
        | {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 3.0}},
    ),
    "llama-yarn": (
        "LlamaConfig",
        "float32",
        {"hidden_size": 36, "intermediate_size": 52, "num_attention_heads": 2, "num_key_value_heads": 2}
        | {"head_dim": 32, "rope_parameters": _YARN},
    ),
    "smollm2": (
        "LlamaConfig",
        "bfloat16",
        {"hidden_size": 72, "intermediate_size": 96, "num_attention_heads": 9, "num_key_value_heads": 3}
        | {"tie_word_embeddings": True},
    ),
    "mistral": (
        "MistralConfig",
        "bfloat16",
        {"hidden_size": 48, "intermediate_size": 80, "num_attention_heads": 4, "num_key_value_heads": 2}
        | {"sliding_window": 21},
    ),
    "qwen2": (
        "Qwen2Config",
        "bfloat16",
        {"hidden_size": 48, "intermediate_size": 64, "num_attention_heads": 6, "num_key_value_heads": 3}
        | {"tie_word_embeddings": True, "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1},
    ),
    "qwen3": (
        "Qwen3Config",
        "bfloat16",
        {"hidden_size": 40, "intermediate_size": 64, "num_attention_heads": 5, "num_key_value_heads": 1}
        | {"head_dim": 24},
    ),
    "llama-wide": (  # rows of whole 256s, which every quantised format wants, and a context that attention splits
        "LlamaConfig",
        "bfloat16",
        {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
        | {"num_hidden_layers": 2, "max_position_embeddings": 1536},
    ),
}
SHARDED = ("llama", "qwen3")  # saved in several files


def write_tiny_model(name: str, directory: Path) -> Path:
    """Make the checkpoint `name` of TINY in `directory`, as transformers saves it, and return the directory."""
    import torch
    import transformers

    config_class, dtype, settings = TINY[name]
    config = getattr(transformers, config_class)(**(_COMMON | settings))
    model = transformers.AutoModelForCausalLM.from_config(config)
    generator = torch.Generator().manual_seed(list(TINY).index(name))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(_scaled(key, parameter, noise))
    model.to(getattr(torch, dtype)).save_pretrained(directory, max_shard_size="20KB" if name in SHARDED else "1GB")
    write_tiny_tokenizer(directory)
    return directory


def _scaled(name: str, parameter: Any, noise: Any) -> Any:
    """Norm weights around 1, biases of order 1, matrices that somewhat enlarge their input."""
    if "norm" in name:
        return 1 + 0.3 * noise
    if parameter.ndim == 1:
        return 0.7 * noise
    if "embed_tokens" in name:  # small, or a tied head would only repeat the last token
        return 0.3 * noise
    return noise * 1.6 / parameter.shape[1] ** 0.5


def write_tiny_tokenizer(directory: Path) -> None:
    """tokenizer.json (bytes and a few merges, specials last) and tokenizer_config.json with a chat template."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in MERGES)]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, list(MERGES)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    assert tokenizer.get_vocab_size() == VOCABULARY
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": SPECIAL_TOKENS[2],
        "pad_token": SPECIAL_TOKENS[0],
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 256,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
