"""The dense Llama structure against transformers, on tiny checkpoints of every family: logits and greedy tokens."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from model_oracle import BLOCK, PagedRun, load_model, relative_error, transformers_logits

from octavo.ops.conformance_cases import lay_out_batch
from tiny_models import TINY, VOCABULARY

PROMPT = np.random.default_rng(0).integers(0, VOCABULARY, 77).tolist()


@pytest.fixture(scope="module", params=TINY)
def directory(request: pytest.FixtureRequest, tiny_model: Callable[[str], Path]) -> Path:
    return tiny_model(request.param)


def test_logits_in_one_chunk(directory: Path) -> None:
    logits_TV = PagedRun(load_model(directory)).step({0: PROMPT})[0]
    assert relative_error(logits_TV, transformers_logits(directory, PROMPT)) < 1e-4


def test_logits_in_chunks_among_other_rows(directory: Path) -> None:
    """Three sequences with scattered blocks, in chunks of unlike sizes that share steps."""
    run = PagedRun(load_model(directory), rows=3)
    prompts = {0: PROMPT, 1: PROMPT[5:60], 2: PROMPT[::-1]}
    got: dict[int, list[np.ndarray]] = {0: [], 1: [], 2: []}
    for sizes in [{0: 40, 1: 1}, {1: 37, 2: 16}, {0: 1, 1: 1, 2: 1}, {0: 36, 1: 16, 2: 60}]:
        at = run.computed
        chunks = {row: prompts[row][at[row] : at[row] + size] for row, size in sizes.items()}
        for row, logits in run.step(chunks).items():
            got[row].append(logits)
    for row, tokens in prompts.items():
        assert relative_error(np.concatenate(got[row]), transformers_logits(directory, tokens)) < 1e-4


def test_greedy_tokens(directory: Path) -> None:
    """64 tokens one by one. Transformers then sees all of them at once: each must be its first choice too."""
    run = PagedRun(load_model(directory))
    tokens = PROMPT[:20]
    logits_TV = run.step({0: tokens})[0]
    for _ in range(64):
        tokens = [*tokens, int(logits_TV[-1].argmax())]
        logits_TV = run.step({0: tokens[-1:]})[0]
    choices = transformers_logits(directory, tokens)[19:-1].argmax(axis=1)
    assert tokens[20:] == choices.tolist()
    assert len(set(tokens[20:])) > 5, "a model that repeats itself proves little"


def test_float64_is_closer_to_itself_than_float32(tiny_model: Callable[[str], Path]) -> None:
    """The float64 model is the same function: float32 differs from it by rounding only."""
    path = tiny_model("qwen3")
    single = PagedRun(load_model(path)).step({0: PROMPT})[0]
    double = PagedRun(load_model(path, "float64")).step({0: PROMPT})[0]
    assert double.dtype == np.float64
    assert 0 < relative_error(single, double) < 1e-5


def test_logits_only_where_wanted(tiny_model: Callable[[str], Path]) -> None:
    model = load_model(tiny_model("llama"))
    run = PagedRun(model)
    everywhere_TV = run.step({0: PROMPT[:9]})[0]
    for wanted in ([8], [3, 0], []):
        batch = lay_out_batch(run.backend, [(0, 9)], run.tables, BLOCK, np.array(PROMPT[:9]))
        batch.logit_S = run.backend.upload(np.array(wanted), "int32")
        logits_SV = run.backend.download(model.forward(batch, run.kv))
        assert logits_SV.shape == (len(wanted), VOCABULARY)
        np.testing.assert_allclose(logits_SV, everywhere_TV[wanted], rtol=1e-4, atol=1e-5)
