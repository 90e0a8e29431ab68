"""The whole path from request to tokens against transformers: greedy generation, and log probabilities."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from served import Answered, Served, run
from transformers import AutoModelForCausalLM

from octavo.types import FinishReason, Request, SamplingParams
from tiny_models import EOS, TINY, VOCABULARY

NEW_TOKENS = 40
LENGTHS = (1, 2, 15, 16, 17, 40, 77, 130)
PROMPTS = [np.random.default_rng(length).integers(0, VOCABULARY, length).tolist() for length in LENGTHS]


@pytest.fixture(scope="module", params=TINY)
def directory(request: pytest.FixtureRequest, tiny_model: Callable[[str], Path]) -> Path:
    return tiny_model(request.param)


@pytest.fixture(scope="module")
def logits(directory: Path) -> Callable[[list[int]], np.ndarray]:
    """Logits [T, V] of transformers at every position of a text, in one pass without a cache."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()

    def of(tokens: list[int]) -> np.ndarray:
        with torch.no_grad():
            return model(torch.tensor([tokens])).logits[0].numpy().astype(np.float64)

    return of


def _greedy(directory: Path, logprobs: int | None) -> list[Answered]:
    params = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, logprobs=logprobs)
    requests = [Request(id=str(i), prompt=prompt, params=params, seed=0) for i, prompt in enumerate(PROMPTS)]
    answers = run(Served(directory).engine(chunk=32), requests)
    return [answers[str(i), 0] for i in range(len(PROMPTS))]


def test_greedy_generation(directory: Path, logits: Callable[[list[int]], np.ndarray]) -> None:
    """Given all our tokens at once, transformers' first choice after each prefix is our next token: by induction
    both generate the same text."""
    for prompt, answer in zip(PROMPTS, _greedy(directory, None), strict=True):
        choices = logits(prompt + answer.tokens)[len(prompt) - 1 :].argmax(axis=1).tolist()
        if answer.finish is FinishReason.STOP:
            assert choices == [*answer.tokens, EOS]
        else:
            assert choices[:-1] == answer.tokens
            assert len(answer.tokens) == NEW_TOKENS


def test_logprobs_are_log_softmax_of_the_logits(directory: Path, logits: Callable[[list[int]], np.ndarray]) -> None:
    """To 1e-4 of the largest logit, the agreement that the models' own tests ask for."""
    for prompt, answer in zip(PROMPTS, _greedy(directory, 5), strict=True):
        assert len(answer.logprobs) == len(answer.tokens)
        logits_TV = logits(prompt + answer.tokens)[len(prompt) - 1 :]
        tolerance = 1e-4 * np.abs(logits_TV).max()
        logprob_TV = logits_TV - np.logaddexp.reduce(logits_TV, axis=1, keepdims=True)
        for token, report, logprob_V in zip(answer.tokens, answer.logprobs, logprob_TV, strict=False):
            ids, values = zip(*report.top, strict=True)
            assert report.token == token
            assert report.logprob == pytest.approx(logprob_V[token], abs=tolerance)
            assert values == pytest.approx(np.sort(logprob_V)[:-6:-1], abs=tolerance)
            assert values == pytest.approx(logprob_V[list(ids)], abs=tolerance)
