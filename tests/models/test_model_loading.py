"""Loading a model: what is shared, what is limited, and checkpoints that do not fit their config."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from model_oracle import load_model
from safetensors.numpy import load_file, save_file

from octavo.checkpoint.open import open_checkpoint
from octavo.errors import CheckpointError
from octavo.models.llama import Llama
from octavo.models.registry import model_facts
from octavo.ops.reference.backend import ReferenceBackend


@pytest.fixture
def copy(tiny_model: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """copy(name, **changes): a checkpoint with keys of its config changed."""

    def changed(name: str, **changes: object) -> Path:
        directory = shutil.copytree(tiny_model(name), tmp_path / name)
        config = json.loads((directory / "config.json").read_text())
        (directory / "config.json").write_text(json.dumps(config | changes))
        return directory

    return changed


def test_a_tied_head_is_the_embedding(tiny_model: Callable[[str], Path]) -> None:
    model = load_model(tiny_model("smollm2"))
    assert model.head.weight is model.embedding


def test_a_tied_model_ignores_a_stored_head(copy: Callable[..., Path]) -> None:
    directory = copy("smollm2")
    tensors = load_file(directory / "model.safetensors")
    tensors["lm_head.weight"] = np.zeros_like(tensors["model.embed_tokens.weight"])
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(4, np.float32)
    save_file(tensors, directory / "model.safetensors")
    assert load_model(directory).head.weight.any()


def test_missing_and_unused_tensors_are_one_error(copy: Callable[..., Path]) -> None:
    with pytest.raises(CheckpointError, match=r"missing: lm_head\.weight$"):
        load_model(copy("smollm2", tie_word_embeddings=False))
    with pytest.raises(CheckpointError, match=r"missing: model\.layers\.3\.input_layernorm\.weight, .* and 12 more$"):
        load_model(copy("qwen2", num_hidden_layers=5, layer_types=None))
    with pytest.raises(CheckpointError, match=r"does not use: model\.layers\.2\.input_layernorm\.weight"):
        load_model(copy("qwen3", num_hidden_layers=2, layer_types=None))


def test_wrong_shapes_name_tensor_and_file(copy: Callable[..., Path]) -> None:
    with pytest.raises(
        CheckpointError, match=r"down_proj\.weight in .*model\.safetensors is \[48, 80\], not \[48, 81\]"
    ):
        load_model(copy("mistral", intermediate_size=81))


def test_the_context_can_be_limited_but_not_stretched(tiny_model: Callable[[str], Path]) -> None:
    def load(context_length: int | None) -> Llama:
        source = open_checkpoint(tiny_model("mistral"))
        backend = ReferenceBackend()
        return Llama.load(source.config, source, backend, 8, max_logits=2, context_length=context_length)

    assert [load(limit).context_length for limit in (None, 100, 1000)] == [256, 100, 256]


def test_buffers_take_what_the_facts_say(tiny_model: Callable[[str], Path]) -> None:
    """The memory plan is made from facts; the model must not take more."""
    taken: list[int] = []

    class Counting(ReferenceBackend):
        def empty(self, shape: tuple[int, ...], dtype: str | None = None) -> np.ndarray:
            taken.append(int(np.prod(shape)))
            return super().empty(shape, dtype)

    source = open_checkpoint(tiny_model("llama"))
    model = Llama.load(source.config, source, Counting(), 32, max_logits=4)
    facts = model_facts(source.config)
    hidden = model.embedding.shape[1]
    assert sum(taken) == 32 * facts.scratch_per_token + 4 * (facts.vocab_size + hidden)
