"""GGUFSource against transformers' own GGUF loader (names, row order, config), and the models that it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from gguf import GGMLQuantizationType
from tiny_gguf import Tiny, tensors_of, write_gguf
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from octavo.checkpoint.gguf import GGUFSource
from octavo.errors import CheckpointError, UnsupportedModel
from octavo.quant.dequantize import dequantize

MODELS = {
    "llama": Tiny(),
    "llama untied q8_0": Tiny(tied=False, quant=GGMLQuantizationType.Q8_0),
    "llama q4_1": Tiny(quant=GGMLQuantizationType.Q4_1),
    "qwen2": Tiny(arch="qwen2", head_dim=16, qkv_bias=True),
    "qwen3": Tiny(arch="qwen3", qk_norm=True, quant=GGMLQuantizationType.BF16),
}
CONFIG_KEYS = [
    *("model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "max_position_embeddings", "vocab_size", "tie_word_embeddings"),
    *("bos_token_id", "eos_token_id"),
]


@pytest.mark.parametrize("kind", MODELS)
def test_tensors_and_config_equal_transformers(tmp_path: Path, kind: str) -> None:
    tiny = MODELS[kind]
    path = write_gguf(tmp_path / "m.gguf", tiny, edit=lambda writer: writer.add_vocab_size(tiny.vocab))
    config = transformers.AutoConfig.from_pretrained(tmp_path, gguf_file=path.name)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    expected = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"]
    source = GGUFSource(path)
    assert source.names == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(dequantize(source.tensor(name)), values.numpy(), err_msg=name)
    for key in CONFIG_KEYS:
        assert source.config[key] == getattr(config, key), key
    assert source.config["head_dim"] == tiny.head_dim  # which transformers does not read
    assert source.config["rms_norm_eps"] == pytest.approx(config.rms_norm_eps, rel=2**-24)
    assert source.config["rope_theta"] == config.rope_parameters["rope_theta"]
    assert source.config["architectures"] == [type(model).__name__]
    assert source.config["attention_bias"] == tiny.qkv_bias
    source.close()


def test_llama_biases_are_reordered_with_their_rows(tmp_path: Path) -> None:
    tiny = Tiny(qkv_bias=True)
    stored = tensors_of(tiny)
    source = GGUFSource(write_gguf(tmp_path / "m.gguf", tiny, stored))
    for part, heads in (("q", tiny.heads), ("k", tiny.kv_heads)):
        bias = stored[f"blk.1.attn_{part}.bias"].reshape(heads, -1)
        expected = [np.concatenate([head[0::2], head[1::2]]) for head in bias]
        values = dequantize(source.tensor(f"model.layers.1.self_attn.{part}_proj.bias"))
        np.testing.assert_array_equal(values, np.concatenate(expected))
    values = dequantize(source.tensor("model.layers.1.self_attn.v_proj.bias"))
    np.testing.assert_array_equal(values, stored["blk.1.attn_v.bias"])


def test_formats_and_shapes_cost_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = GGUFSource(write_gguf(tmp_path / "m.gguf", Tiny(quant=GGMLQuantizationType.Q4_1)))
    of_tensors = sorted((tensor.format, tensor.shape) for tensor in map(source.tensor, source.names))
    monkeypatch.setattr(GGUFSource, "tensor", None)
    assert sorted(source.stored) == of_tensors
    assert {format for format, _ in of_tensors} == {"f32", "q4_1"}


def test_tensors_are_views_of_the_mapped_file(tmp_path: Path) -> None:
    source = GGUFSource(write_gguf(tmp_path / "m.gguf", Tiny()))
    data = source.tensor("model.embed_tokens.weight").data
    assert not data.flags.owndata
    assert not data.flags.writeable
    assert source.total_bytes == sum(values.nbytes for values in tensors_of(Tiny()).values())
    source.close()
    assert data.sum() > 0  # a view that is still held keeps the mapping alive


def config_with(path: Path, edit: Callable[[gguf.GGUFWriter], None], **sizes: Any) -> dict[str, Any]:
    source = GGUFSource(write_gguf(path / "m.gguf", Tiny(**sizes), edit=edit))
    source.close()
    return source.config


def test_sliding_window_makes_a_mistral(tmp_path: Path) -> None:
    config = config_with(tmp_path, lambda writer: writer.add_sliding_window(128))
    assert (config["model_type"], config["sliding_window"]) == ("mistral", 128)


def test_linear_rope_scaling(tmp_path: Path) -> None:
    def linear(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(4.0)

    assert config_with(tmp_path, linear)["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}


def test_yarn_rope_scaling(tmp_path: Path) -> None:
    def yarn(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(64)

    expected = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    assert config_with(tmp_path, yarn)["rope_scaling"] == expected | {"beta_fast": 32.0, "beta_slow": 1.0}


def test_llama3_frequency_factors(tmp_path: Path) -> None:
    factors = np.linspace(1, 8, Tiny.head_dim // 2, dtype=np.float32)
    path = write_gguf(tmp_path / "m.gguf", Tiny(), tensors_of(Tiny()) | {"rope_freqs.weight": factors})
    source = GGUFSource(path)
    assert source.config["rope_scaling"] == {"rope_type": "llama3", "frequency_factors": factors.tolist()}
    assert "rope_freqs.weight" not in source.names


def test_end_of_turn_tokens_join_the_end_tokens(tmp_path: Path) -> None:
    assert config_with(tmp_path, lambda writer: writer.add_eot_token_id(7))["eos_token_id"] == [2, 7]
    assert config_with(tmp_path, lambda writer: writer.add_eot_token_id(2))["eos_token_id"] == 2


def test_decimals_are_those_that_were_meant(tmp_path: Path) -> None:
    config = config_with(tmp_path, lambda writer: None)
    assert (config["rms_norm_eps"], config["rope_theta"]) == (1e-5, 500000.0)


def replaced(name: str, values: np.ndarray | None) -> dict[str, np.ndarray]:
    tensors = tensors_of(Tiny())
    if values is None:
        del tensors[name]
    else:
        tensors[name] = values
    return tensors


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda writer: writer.add_expert_count(8), "mixture-of-experts"),
        (lambda writer: writer.add_value_length(8), "value_length' differs from the head dim 32"),
        (lambda writer: writer.add_rope_dimension_count(16), "dimension_count' differs"),
        (lambda writer: writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE), "rope scaling 'longrope'"),
        (lambda writer: writer.add_rope_scaling_attn_factors(1.5), "attn_factor is not supported"),
    ],
)
def test_variants_that_are_not_served(tmp_path: Path, edit: Callable[..., None], message: str) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        GGUFSource(write_gguf(tmp_path / "m.gguf", Tiny(), edit=edit))


def test_unsupported_architecture_lists_the_supported(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", Tiny(arch="mamba"))
    with pytest.raises(
        UnsupportedModel, match="architecture 'mamba' is not supported; supported are llama, qwen2, qwen3"
    ):
        GGUFSource(path)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda writer: writer.add_block_count(3),
            "block_count' says 3 layers, but there is no tensor 'blk.2.attn_norm",
        ),
        (lambda writer: writer.add_block_count(-1 % 2**32), "block_count' must be a whole number"),
        (lambda writer: writer.add_head_count_kv(3), "no multiple of the 3 kv heads"),
        (lambda writer: writer.add_head_count(0), "head_count' must be a whole number of at least 1, got 0"),
        (lambda writer: writer.add_embedding_length(65), r"token_embd.weight' is of shape \[48, 64\]"),
        (lambda writer: writer.add_layer_norm_rms_eps(float("nan")), "rms_epsilon' must be a positive number"),
        (lambda writer: writer.add_string("llama.context_length", "long"), "context_length' must be a whole number"),
    ],
)
def test_contradicting_metadata(tmp_path: Path, edit: Callable[..., None], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        GGUFSource(write_gguf(tmp_path / "m.gguf", Tiny(), edit=edit))


def test_missing_tensors(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"m\.gguf: tensor 'token_embd.weight' is absent"):
        GGUFSource(write_gguf(tmp_path / "m.gguf", Tiny(), replaced("token_embd.weight", None)))
    source = GGUFSource(write_gguf(tmp_path / "n.gguf", Tiny(), replaced("blk.0.attn_v.weight", None)))
    with pytest.raises(CheckpointError, match=r"n\.gguf: there is no tensor 'model.layers.0.self_attn.v_proj.weight'"):
        source.tensor("model.layers.0.self_attn.v_proj.weight")


def test_q_projection_of_another_size(tmp_path: Path) -> None:
    values = np.zeros((100, Tiny.hidden), np.float32)
    source = GGUFSource(write_gguf(tmp_path / "m.gguf", Tiny(), replaced("blk.0.attn_q.weight", values)))
    with pytest.raises(CheckpointError, match=r"q_proj.weight' has shape \[100, 64\]; 4 heads of 32 were expected"):
        source.tensor("model.layers.0.self_attn.q_proj.weight")


def test_unknown_tensors_keep_their_names(tmp_path: Path) -> None:
    extra = {"blk.0.attn_sinks.weight": np.zeros(4, np.float32)}
    source = GGUFSource(write_gguf(tmp_path / "m.gguf", Tiny(), tensors_of(Tiny()) | extra))
    assert "blk.0.attn_sinks.weight" in source.names
