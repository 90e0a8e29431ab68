"""Perplexity against transformers on a tiny model, and on the real one what the native backend may lose by its int8
activations and by an int8 cache.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from octavo.bench.perplexity import Scorer, measure_perplexity, python_text, text_tokens
from octavo.cli.main import app
from octavo.config import EngineConfig
from octavo.errors import BenchError
from octavo.text.load import load_text
from tiny_models import VOCABULARY

TinyModel = Callable[[str], Path]
TOKENS = np.random.default_rng(5).integers(0, VOCABULARY, 151).tolist()
ENGLISH = Path(__file__).parents[2] / "LICENSE"  # words that never change
NATIVE_LOSS = 0.005
INT8_CACHE_LOSS = 0.003


def scorer(path: Path, window: int, **options: object) -> Scorer:
    return Scorer(EngineConfig(model=str(path), **options), path, window)


@pytest.mark.parametrize("chunk", [16, 256])
def test_equals_transformers(tiny_model: TinyModel, chunk: int) -> None:
    """Windows of 50, 50, 50 and a last token that has nothing before it."""
    path = tiny_model("llama")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64)
    losses = []
    for start in (0, 50, 100):
        window = torch.tensor([TOKENS[start : start + 50]])
        with torch.no_grad():
            losses += [float(model(window, labels=window).loss)] * 49
    figures = measure_perplexity(scorer(path, 50, backend="reference", dtype="float64", chunk=chunk), TOKENS, 50)
    assert (figures.scored, figures.tokens, figures.window) == (147, 151, 50)
    assert figures.nats_per_token == pytest.approx(sum(losses) / 147, rel=1e-5)
    assert figures.perplexity == pytest.approx(math.exp(figures.nats_per_token))


def test_what_cannot_be_scored_is_refused(tiny_model: TinyModel) -> None:
    with pytest.raises(BenchError, match="has 3 tokens, not 4"):
        text_tokens(list, "abc", 4)
    with pytest.raises(BenchError, match="256, got 257"):
        scorer(tiny_model("llama"), 257)


def test_the_command_names_the_tokens(tiny_model: TinyModel, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the thin thing then " * 20)
    arguments = ["bench", "perplexity", str(tiny_model("llama")), "--text", str(text), "--tokens", "60"]
    result = CliRunner().invoke(app, [*arguments, "--window", "30", "--json", str(tmp_path / "figures.json")])
    assert result.exit_code == 0, result.output
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["scored"] == 58
    assert figures["fingerprint"] in result.stdout
    result = CliRunner().invoke(app, [*arguments[:-1], "60000"])
    assert result.exit_code == 1
    assert "lower --tokens" in result.stderr


def test_the_default_text_is_long_english() -> None:
    text = python_text()
    assert len(text) > 300_000
    assert " the " in text[:1000]


@pytest.mark.slow
def test_what_the_native_backend_loses(smollm2_path: Path) -> None:
    """The same weights and text; docs/benchmarks.md has the figures on 20,480 tokens."""
    tokenizer = load_text(smollm2_path).tokenizer
    tokens = text_tokens(lambda text: tokenizer.encode(text, add_special=False), ENGLISH.read_text(), 2048)

    def perplexity(**options: object) -> float:
        return measure_perplexity(scorer(smollm2_path, 512, **options), tokens, 512).perplexity

    reference = perplexity(backend="reference", dtype="float32")
    native = perplexity(backend="native", kv_dtype="bf16")
    assert 2 < reference < 50
    assert abs(native / reference - 1) <= NATIVE_LOSS
    assert abs(perplexity(backend="native", kv_dtype="int8") / native - 1) <= INT8_CACHE_LOSS
