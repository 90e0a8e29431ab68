"""The same weights from GGUF and from safetensors: the same logits, row order, rope factors and tied heads included."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from model_oracle import PagedRun, load_model, relative_error

from gguf_copy import write_gguf_copy
from tiny_models import VOCABULARY

PROMPT = np.random.default_rng(1).integers(0, VOCABULARY, 90).tolist()


@pytest.mark.parametrize("name", ["smollm2", "llama", "qwen3"])
def test_gguf_gives_the_logits_of_safetensors(name: str, tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    directory = tiny_model(name)
    gguf_path = write_gguf_copy(directory, tmp_path / "model.gguf")
    expected = PagedRun(load_model(directory)).step({0: PROMPT})[0]
    assert relative_error(PagedRun(load_model(gguf_path)).step({0: PROMPT})[0], expected) < 1e-5
