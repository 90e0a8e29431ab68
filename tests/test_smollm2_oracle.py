"""SmolLM2-135M-Instruct, the default model, against transformers on the same GGUF file: greedy tokens in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from octavo import LLM, SamplingParams
from octavo.generation import Generation

TIE = 1e-4  # two logits closer than this are equal as far as float32 sums can tell
GREEDY = SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=True)
TEXTS = (
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "#include <stdio.h>\n\nint main(void) {\n",
    "1, 1, 2, 3, 5, 8, 13,",
    "Q: What is 17 + 25?\nA:",
    "Die Hauptstadt von Deutschland ist",
    "今日の天気は",
    "🙂🙃🙂🙃",
    "To be, or not to be, that is the question:",
    "SELECT name, age FROM users WHERE",
    "x",
    "   \n\n\t",
    "The quick brown fox jumps over the lazy dog. " * 12,
)
QUESTIONS = (
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Explain photosynthesis to a child.",
    "Translate 'good morning' into Spanish.",
    "Write a Python function that reverses a string.",
    "Why is the sky blue?",
    "Give me three tips for sleeping well.",
    "Wie heißt du?",
    "Summarize: the cat sat on the mat, then the dog came, and the cat left.",
    "List the planets of the solar system in order.",
)


@pytest.fixture(scope="module")
def answers(smollm2_path: Path) -> list[Generation]:
    """Ours, all 24 in one batch."""
    with LLM(str(smollm2_path), dtype="float32", kv_memory="512MiB", debug=True) as llm:
        chats = [llm.text.template.render([{"role": "user", "content": question}]) for question in QUESTIONS]
        prompts = [llm.tokenizer.encode(chat, add_special=False) for chat in chats]
        return llm.generate([*TEXTS, *prompts], GREEDY)


def _their_model(path: Path) -> Any:
    """What `from_pretrained(gguf_file=...)` makes, which would want the package accelerate for it."""
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    tensors = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"]
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert missing in ([], ["lm_head.weight"]), f"not loaded: {missing}"
    assert not unexpected
    model.tie_weights()
    return model.eval()


@pytest.mark.slow
def test_greedy_tokens_equal_transformers(smollm2_path: Path, answers: list[Generation]) -> None:
    """Given our tokens, each next one must be transformers' first choice, or tie with it: by induction both generate
    the same text up to the first tie, and beyond it the choices after the same tokens are still compared."""
    model = _their_model(smollm2_path)
    compared, ties, wrong = 0, [], []
    for index, answer in enumerate(answers):
        with torch.no_grad():
            logits_TV = model(torch.tensor([answer.prompt_tokens + answer.tokens[:-1]])).logits[0]
        logits_TV = logits_TV[len(answer.prompt_tokens) - 1 :]
        for position, token in enumerate(answer.tokens):
            compared += 1
            if (best := int(logits_TV[position].argmax())) != token:
                gap = float(logits_TV[position, best] - logits_TV[position, token])
                (ties if gap < TIE else wrong).append((index, position, gap))
    print(f"{compared} tokens compared, {len(ties)} differ at a tie, {len(wrong)} differ")
    assert not wrong, f"(prompt, position, logit difference): {wrong}"
    assert compared == 24 * 64
    assert len(ties) <= 3, f"too many to be chance: {ties}"


@pytest.mark.slow
def test_the_answers_make_sense(answers: list[Generation]) -> None:
    """The right tokens of a wrongly decoded model would make none."""
    assert "Paris" in answers[0].text
    assert "Paris" in answers[len(TEXTS)].text
    assert "plant" in answers[len(TEXTS) + 2].text
    assert "Mercury" in answers[-1].text
