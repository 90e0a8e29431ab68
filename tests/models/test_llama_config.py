"""LlamaConfig: facts agree with transformers' own count, and every bad key is named."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.errors import CheckpointError, UnsupportedModel
from octavo.models.llama_config import LlamaConfig
from octavo.models.registry import model_facts
from tiny_models import TINY

SMALL = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 512,
}


@pytest.mark.parametrize("name", TINY)
def test_facts(name: str, tiny_model: Callable[[str], Path]) -> None:
    from transformers import AutoModelForCausalLM

    directory = tiny_model(name)
    facts = model_facts(json.loads((directory / "config.json").read_text()))
    model = AutoModelForCausalLM.from_pretrained(directory)
    assert facts.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert facts.layers == len(model.model.layers) == len(facts.windows)
    assert facts.kv_heads * facts.head_dim == model.model.layers[0].self_attn.k_proj.out_features
    assert facts.vocab_size == model.config.vocab_size


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": None}, "lacks the key 'hidden_size'"),
        ({"vocab_size": "many"}, "'vocab_size' must be a whole number between 1 and .*, got 'many'"),
        ({"num_hidden_layers": 10**9}, "'num_hidden_layers' must be a whole number between 1 and 1024"),
        ({"num_hidden_layers": True}, "'num_hidden_layers'"),
        ({"max_position_embeddings": 10**12}, "'max_position_embeddings'"),
        ({"num_key_value_heads": 3}, r"num_attention_heads \(4\) is not a multiple of num_key_value_heads \(3\)"),
        ({"hidden_size": 66}, r"hidden_size \(66\) is not a multiple of num_attention_heads \(4\)"),
        ({"rms_norm_eps": float("nan")}, "'rms_norm_eps' must be a finite number"),
        ({"tie_word_embeddings": "yes"}, "'tie_word_embeddings' must be true or false"),
        ({"rope_scaling": 4}, "'rope_scaling' must be an object"),
        ({"rope_scaling": {"type": "linear"}}, "'rope_scaling.factor'"),
        ({"rope_scaling": {"type": "linear", "factor": 0.5}}, "'rope_scaling.factor' must be at least 1"),
        ({"rope_scaling": {"rope_type": "llama3", "frequency_factors": [1, 0]}}, "a list of 8 positive numbers"),
        ({"rope_theta": 1.0}, "rope_theta > 1"),
        ({"head_dim": 7}, "even number of dimensions"),
    ],
    ids=str,
)
def test_senseless_configs_name_the_key(change: dict, words: str) -> None:
    with pytest.raises(CheckpointError, match=words) as caught:
        LlamaConfig.from_hf(SMALL | change)
    assert not isinstance(caught.value, UnsupportedModel)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported; supported: silu"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "rope scaling of kind 'longrope'"),
        ({"model_type": "qwen2", "use_sliding_window": True, "layer_types": ["linear_attention"] * 4}, "layer_types"),
        ({"model_type": "gpt2"}, r"model_type 'gpt2'.*supported: LlamaForCausalLM \(llama\), Mistral"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised with 'gptq'.*use a GGUF file"),
    ],
    ids=str,
)
def test_unserved_models_say_what_is_served(change: dict, words: str) -> None:
    with pytest.raises(UnsupportedModel, match=words):
        model_facts(SMALL | change)


@pytest.mark.parametrize(
    ("change", "windows"),
    [
        ({"sliding_window": 9}, (None,) * 4),
        ({"model_type": "mistral", "sliding_window": 9}, (9,) * 4),
        ({"model_type": "mistral", "sliding_window": None}, (None,) * 4),
        ({"model_type": "qwen2", "sliding_window": 9, "use_sliding_window": False}, (None,) * 4),
        (
            {"model_type": "qwen2", "sliding_window": 9, "use_sliding_window": True, "max_window_layers": 3},
            (None, None, None, 9),
        ),
        (
            {"model_type": "qwen3", "sliding_window": 9, "use_sliding_window": True}
            | {"layer_types": ["sliding_attention", "full_attention"] * 2},
            (9, None, 9, None),
        ),
    ],
    ids=str,
)
def test_windows(change: dict, windows: tuple) -> None:
    assert LlamaConfig.from_hf(SMALL | change).windows == windows


def test_facts_need_no_numpy() -> None:
    import subprocess
    import sys

    code = "import sys, octavo.models.registry; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
