"""`--quantize q4|q8` from a safetensors checkpoint to tokens, at widths of every kind. The oracle is the reference
backend on the very weights that the packed form stands for, read back with EMBED; and how far those are from the
original.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from octavo import LLM, SamplingParams
from octavo.bench.perplexity import Scorer
from octavo.build import BuildOrder, build_engine, engine_config
from octavo.config import EngineConfig
from octavo.ops.native.backend import NativeBackend
from octavo.quant.raw import RawWeight
from tiny_models import VOCABULARY

TinyModel = Callable[[str], Path]
# bf16, f16, f32; rows of 48, 40, 36 and 256 numbers: whole groups of 32 are the exception
MODELS = ("llama", "llama-biased", "llama-yarn", "llama-wide")
TOKENS = np.random.default_rng(3).integers(0, VOCABULARY, 200).tolist()
# How far log likelihoods may lie from those of the given weights in float32, as a share of their spread. Rounding of
# activations to int8, of all values between layers: 1/254 of the largest of 32, through three layers that enlarge it.
COMPUTED = {None: 0.03, "q8": 0.10, "q4": 0.10}
# And from the checkpoint's own weights. 8 bits round weights as finely as activations. 4 bits have 16 times that step,
# and random weights have none of the outliers and none of the redundancy that make it harmless in a trained model.
ROUNDED = {None: 0.03, "q8": 0.15, "q4": 0.85}


def log_likelihoods(path: Path, **options: object) -> np.ndarray:
    config = EngineConfig(model=str(path), threads=2, **options)
    return np.array(Scorer(config, path, len(TOKENS)).log_likelihoods(TOKENS))


def distance(got: np.ndarray, expected: np.ndarray) -> float:
    """Root mean square difference as a share of the spread; NaN counts as infinite."""
    error = float(np.sqrt(np.mean((got - expected) ** 2)) / expected.std())
    return error if np.isfinite(error) else float("inf")


def raw(name: str, values: np.ndarray) -> RawWeight:
    return RawWeight.view(name, "memory", "f32", values.shape, memoryview(np.ascontiguousarray(values)).cast("B"))


def rounded_copy(path: Path, target: Path, quantize: str) -> Path:
    """The checkpoint with every matrix as the packed form holds it, in float32."""
    backend = NativeBackend(quantize=quantize)
    for shard in path.glob("*.safetensors"):
        tensors = load_file(shard)
        for name, stored in tensors.items():
            values = tensors[name] = stored.astype(np.float32)
            if values.ndim == 2:
                out = backend.empty(values.shape)
                rows = backend.upload(np.arange(len(values)), "int32")
                backend.embed(backend.pack([raw(name, values)]), rows, out)
                tensors[name] = backend.download(out)
                assert not np.array_equal(tensors[name], values), "nothing was rounded"
        save_file(tensors, target / shard.name)
    for file in path.glob("*.json"):
        shutil.copy(file, target)
    return target


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("quantize", [None, "q8", "q4"])
def test_computes_with_the_weights_that_it_packed(
    tiny_model: TinyModel, tmp_path: Path, name: str, quantize: str | None
) -> None:
    path = tiny_model(name)
    copy = path if quantize is None else rounded_copy(path, tmp_path, quantize)
    got = log_likelihoods(path, backend="native", quantize=quantize)
    assert distance(got, log_likelihoods(copy, backend="reference")) < COMPUTED[quantize]
    assert distance(got, log_likelihoods(path, backend="reference")) < ROUNDED[quantize]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("quantize", [None, "q8", "q4"])
def test_generates(tiny_model: TinyModel, name: str, quantize: str | None) -> None:
    """Greedy tokens, each the likeliest by its own report. The first, before which all is equal, is in 8 bits one that
    the plain checkpoint likes best or nearly so."""
    params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True, logprobs=5)
    answers = {}
    for way in {None, quantize}:
        with LLM(str(tiny_model(name)), backend="native", quantize=way, kv_memory="4MiB", max_running=8) as llm:
            [answers[way]] = llm.generate([TOKENS[:40]], params)[0].choices
    answer = answers[quantize]
    assert len(answer.tokens) == 24
    assert len(set(answer.tokens)) > 3
    assert all(report.top[0][0] == token for report, token in zip(answer.logprobs, answer.tokens, strict=True))
    if quantize == "q8":
        plain = dict(answers[None].logprobs[0].top)
        assert max(plain.values()) - plain[answer.tokens[0]] < 0.6


@pytest.mark.parametrize("quantize", ["q8", "q4"])
def test_fewer_bits_take_less_memory(tiny_model: TinyModel, quantize: str) -> None:
    def weight_bytes(way: str | None) -> int:
        with LLM(str(tiny_model("llama-wide")), backend="native", quantize=way, kv_memory="4MiB") as llm:
            return llm.resolved.weight_bytes

    assert weight_bytes(quantize) < weight_bytes(None) * {"q8": 0.6, "q4": 0.4}[quantize]


def test_formats_without_a_packed_form_say_so_once(caplog: pytest.LogCaptureFixture) -> None:
    backend = NativeBackend()
    blocks = np.random.default_rng(0).integers(0, 64, (32, 66), np.uint8)
    with caplog.at_level(logging.WARNING):
        for name in ("a", "b"):
            backend.pack([RawWeight(name, "file", "iq2_xxs", (32, 256), blocks)])
        backend.pack([raw("c", np.ones((16, 64), np.float32))])
    [message] = caplog.messages
    assert "iq2_xxs has no packed form of its own" in message
    assert "8 bits" in message


def test_float64_checkpoints_are_kept_in_float32(tiny_model: TinyModel, tmp_path: Path) -> None:
    """Not in 8 bits, as other formats without a packed form are."""
    path = tiny_model("llama-yarn")
    for shard in path.glob("*.safetensors"):
        save_file({name: values.astype(np.float64) for name, values in load_file(shard).items()}, tmp_path / shard.name)
    for file in path.glob("*.json"):
        shutil.copy(file, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"dtype": "float64"}))
    np.testing.assert_array_equal(log_likelihoods(tmp_path, backend="native"), log_likelihoods(path, backend="native"))


@pytest.mark.parametrize(("model", "told"), [("llama-q4_k", True), ("llama-mixed", False), ("llama", False)])
def test_a_quantised_checkpoint_is_left_alone_and_the_user_told(
    tiny_model: TinyModel, caplog: pytest.LogCaptureFixture, model: str, told: bool
) -> None:
    config = engine_config({"backend": "native", "quantize": "q8", "kv_memory": "4MiB"})
    order = BuildOrder(config=config, path=str(tiny_model(model)), eos_ids=[])
    build_engine(msgspec.to_builtins(order), lambda *_: None)
    assert any("--quantize q8 changes nothing" in message for message in caplog.messages) == told
