"""Rotary tables of every scaling kind against transformers' own, over the whole context."""

import numpy as np
import pytest

from octavo.layers.config_keys import ConfigKeys
from octavo.layers.rope import rope_table
from octavo.layers.rope_scaling import rotation_from_config

SIZES = {"max_position_embeddings": 4096, "hidden_size": 256, "num_attention_heads": 4, "head_dim": 48}
KINDS = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    | {"original_max_position_embeddings": 512},
    "yarn": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512},
    "yarn with mscale": {"rope_type": "yarn", "factor": 40.0, "mscale": 0.7, "mscale_all_dim": 1.2}
    | {"original_max_position_embeddings": 512, "beta_fast": 24.0, "beta_slow": 2.0, "truncate": False},
    "yarn with a given factor": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 1.25}
    | {"original_max_position_embeddings": 2048},
}


def transformers_table(rope: dict) -> np.ndarray:
    import torch
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    module = LlamaRotaryEmbedding(LlamaConfig(**SIZES, rope_parameters=rope))
    cos, sin = module(torch.zeros(1), torch.arange(SIZES["max_position_embeddings"])[None])
    pairs = SIZES["head_dim"] // 2
    return np.stack([cos[0, :, :pairs].numpy(), sin[0, :, :pairs].numpy()], axis=1)


@pytest.mark.parametrize("theta", [10000.0, 500000.0])
@pytest.mark.parametrize("kind", KINDS)
def test_table_equals_transformers(kind: str, theta: float) -> None:
    rope = KINDS[kind] | {"rope_theta": theta}
    rotation = rotation_from_config(ConfigKeys(SIZES | {"rope_parameters": dict(rope)}), SIZES["head_dim"])
    table = rope_table(rotation, SIZES["max_position_embeddings"])
    # One unit in the last place of a frequency is 6e-8 of the angle: 2.5e-4 at position 4096.
    difference = np.abs(table - transformers_table(rope)).max(axis=(1, 2))
    assert (difference <= 2e-6 + 1.3e-7 * np.arange(len(difference))).all()


def test_the_older_spelling_means_the_same() -> None:
    new = rotation_from_config(ConfigKeys(SIZES | {"rope_parameters": KINDS["llama3"] | {"rope_theta": 500.0}}), 48)
    scaling = {key: value for key, value in KINDS["llama3"].items() if key != "rope_type"} | {"type": "llama3"}
    old = rotation_from_config(ConfigKeys(SIZES | {"rope_theta": 500.0, "rope_scaling": scaling}), 48)
    assert new == old != rotation_from_config(ConfigKeys(SIZES), 48)


def test_yarn_reaches_as_far_as_it_was_made_for() -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    config = SIZES | {"max_position_embeddings": 32768, "rope_scaling": scaling}
    assert rotation_from_config(ConfigKeys(config), 48).context_length == 131072
