"""SafetensorsSource against transformers and the safetensors package, zero-copy, and what broken directories get."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file

from octavo.checkpoint.safetensors import SafetensorsSource
from octavo.errors import CheckpointError, UnsupportedModel
from octavo.quant.dequantize import dequantize

INDEX = "model.safetensors.index.json"


def saved_model(directory: Path, dtype: torch.dtype, shard: str = "5GB") -> dict[str, torch.Tensor]:
    """A tiny Llama saved by transformers; returns what it holds."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "vocab_size": 64}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).to(dtype)
    model.save_pretrained(directory, max_shard_size=shard)
    return model.state_dict()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shard", ["5GB", "20KB"])
def test_equals_what_transformers_saved(tmp_path: Path, dtype: torch.dtype, shard: str) -> None:
    expected = saved_model(tmp_path, dtype, shard)
    assert (tmp_path / INDEX).exists() == (shard == "20KB")
    source = SafetensorsSource(tmp_path)
    assert source.names == expected.keys()
    assert source.total_bytes == sum(tensor.nbytes for tensor in expected.values())
    assert source.config == json.loads((tmp_path / "config.json").read_text()) | {"eos_token_id": 2}
    assert sorted(source.stored) == sorted((tensor.format, tensor.shape) for tensor in map(source.tensor, source.names))
    for name, values in expected.items():
        raw = source.tensor(name)
        assert raw.format == {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
        np.testing.assert_array_equal(dequantize(raw), values.float().numpy(), err_msg=name)
    source.close()


def test_nothing_is_copied(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    save_file({"big": torch.ones(4096, 1024, dtype=torch.bfloat16)}, tmp_path / "model.safetensors")
    tracemalloc.start()
    source = SafetensorsSource(tmp_path)
    data = source.tensor("big").data
    assert tracemalloc.get_traced_memory()[1] < data.nbytes / 20
    tracemalloc.stop()
    assert (data.flags.owndata, data.flags.writeable) == (False, False)
    source.close()
    assert data[-1, -1] == 0x3F  # a view that is still held keeps the mapping alive


def test_end_tokens_come_from_the_generation_config(tmp_path: Path) -> None:
    saved_model(tmp_path, torch.float32)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    assert SafetensorsSource(tmp_path).config["eos_token_id"] == [7, 9]


def test_a_single_file_may_have_any_name(tmp_path: Path) -> None:
    saved_model(tmp_path, torch.float32)
    (tmp_path / "model.safetensors").rename(tmp_path / "other.safetensors")
    assert "lm_head.weight" in SafetensorsSource(tmp_path).names


def test_unused_integer_tensors_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    tensors = {"ids": torch.arange(3), "scalar": torch.tensor(1.5), "empty": torch.empty(0, 4)}
    save_file(tensors, tmp_path / "model.safetensors")
    source = SafetensorsSource(tmp_path)
    assert sorted(source.stored) == [("f32", ()), ("f32", (0, 4))]
    assert dequantize(source.tensor("scalar")) == 1.5
    assert dequantize(source.tensor("empty")).shape == (0, 4)
    with pytest.raises(UnsupportedModel, match=r"model\.safetensors: tensor 'ids' has dtype I64; Octavo reads"):
        source.tensor("ids")
    with pytest.raises(CheckpointError, match="there is no tensor 'absent'"):
        source.tensor("absent")


def refuse(directory: Path, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        SafetensorsSource(directory)


def edit_index(directory: Path, edit: Callable[[dict[str, str]], object]) -> None:
    index = json.loads((directory / INDEX).read_text())
    edit(index["weight_map"])
    (directory / INDEX).write_text(json.dumps(index))


def test_missing_shard(tmp_path: Path) -> None:
    saved_model(tmp_path, torch.float32, "20KB")
    shards = sorted(tmp_path.glob("*.safetensors"))
    shards[1].unlink()
    refuse(tmp_path, rf"{shards[1].name}: this shard is missing, and with it \d+ tensors \('model\.")


def test_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "weights.safetensors").symlink_to(tmp_path / "absent")
    refuse(tmp_path, r"weights\.safetensors: no such file")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    (tmp_path / "model.safetensors").write_bytes(b"")
    refuse(tmp_path, r"config\.json: not a file")


def test_truncated_shard(tmp_path: Path) -> None:
    saved_model(tmp_path, torch.float32, "20KB")
    shard = sorted(tmp_path.glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-100])
    refuse(tmp_path, rf"{shard.name}: tensor 'model\..*' ends at byte \d+, but the file has \d+: it is truncated")


def test_index_naming_absent_tensors(tmp_path: Path) -> None:
    saved_model(tmp_path, torch.float32, "20KB")
    edit_index(tmp_path, lambda weight_map: weight_map.update(ghost=next(iter(weight_map.values()))))
    refuse(tmp_path, r"model-0000\d-of-.*: tensor 'ghost' is absent, but model.safetensors.index.json says it is there")


@pytest.mark.parametrize("target", ["../outside.safetensors", "sub/x.safetensors", "config.json", 5, None])
def test_index_pointing_elsewhere(tmp_path: Path, target: object) -> None:
    saved_model(tmp_path, torch.float32, "20KB")
    edit_index(tmp_path, lambda weight_map: weight_map.update({"lm_head.weight": target}))
    refuse(tmp_path, "tensor 'lm_head.weight' points to .*, which is no safetensors file beside it")


@pytest.mark.parametrize("text", ["[]", "{", '{"weight_map": []}', '{"weight_map": {}}', "\udcff"])
def test_broken_index(tmp_path: Path, text: str) -> None:
    saved_model(tmp_path, torch.float32, "20KB")
    (tmp_path / INDEX).write_bytes(text.encode(errors="surrogateescape"))
    refuse(tmp_path, INDEX)


def test_lost_index(tmp_path: Path) -> None:
    saved_model(tmp_path, torch.float32, "20KB")
    (tmp_path / INDEX).unlink()
    refuse(tmp_path, r"\d safetensors files but no model.safetensors.index.json")


def test_config_missing_or_broken(tmp_path: Path) -> None:
    saved_model(tmp_path, torch.float32)
    (tmp_path / "config.json").write_text("[1]")
    refuse(tmp_path, "config.json: not a JSON object")
    (tmp_path / "config.json").unlink()
    refuse(tmp_path, "config.json: no such file")


@pytest.mark.parametrize("value", ['{"quant_method": "gptq", "bits": 4}', '"gptq"'])
def test_quantised_in_the_config(tmp_path: Path, value: str) -> None:
    (tmp_path / "config.json").write_text(f'{{"quantization_config": {value}}}')
    save_file({"a.qweight": torch.ones(2, dtype=torch.int32)}, tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedModel, match=r"config\.json: quantization_config with method '(gptq|None)'"):
        SafetensorsSource(tmp_path)


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
BAD_HEADERS = {
    "overlap": ({"a": F32, "b": F32}, 8, "tensor 'b' overlaps another"),
    "hole": ({"a": F32, "b": F32 | {"data_offsets": [12, 20]}}, 20, "tensor 'b' leaves a hole"),
    "size": ({"a": F32 | {"shape": [3]}}, 8, "tensor 'a' of dtype F32 and shape .* does not fill bytes 0 to 8"),
    "backwards": ({"a": F32 | {"data_offsets": [8, 0]}}, 8, "does not fill bytes 8 to 0"),
    "tail": ({"a": F32}, 9, "1 bytes after the last tensor"),
    "dtype": ({"a": F32 | {"dtype": "F128"}}, 8, "unknown dtype 'F128'"),
    "negative": ({"a": F32 | {"shape": [-2]}}, 8, "malformed"),
    "boolean": ({"a": F32 | {"shape": [True, 2]}}, 8, "malformed"),
    "extra key": ({"a": F32 | {"x": 1}}, 8, "malformed"),
    "no object": ({"a": 1}, 0, "malformed"),
}


@pytest.mark.parametrize("kind", BAD_HEADERS)
def test_bad_headers(tmp_path: Path, kind: str) -> None:
    header, data_bytes, message = BAD_HEADERS[kind]
    text = json.dumps(header).encode()
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(data_bytes))
    refuse(tmp_path, rf"model\.safetensors: .*{message}")


@pytest.mark.parametrize("length", [2**63, 10**8 + 1, 10**7])
def test_header_length_beyond_the_file(tmp_path: Path, length: int) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(length.to_bytes(8, "little") + b"{}")
    refuse(tmp_path, "truncated" if length < 10**8 else "no safetensors file")
