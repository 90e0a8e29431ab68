"""Loading a model's text: GGUF templates, fallback templates, SmolLM2 in full, speed, and an import without numpy."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import tiny_tokenizers
from sample_texts import long_text
from template_styles import CONVERSATIONS, STYLES, TOOLS

from octavo.checkpoint.gguf_file import GGUFFile
from octavo.errors import CheckpointError, InvalidRequest
from octavo.text.load import load_text

HEAVY = ("numpy", "torch", "transformers", "ml_dtypes", "gguf", "huggingface_hub", "safetensors")


def test_the_front_end_imports_nothing_heavy(bpe_gguf, llama_directory):
    """In a fresh process: import every module of text, then load a file and a directory."""
    program = (
        "import importlib, pkgutil, sys\nfrom pathlib import Path\nimport octavo.text\n"
        "for module in pkgutil.iter_modules(octavo.text.__path__):\n"
        "    importlib.import_module('octavo.text.' + module.name)\n"
        "from octavo.text.load import load_text\n"
        "for path in sys.argv[1:]:\n    load_text(Path(path)).template.render([{'role': 'user', 'content': 'x'}])\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    command = [sys.executable, "-c", program, str(bpe_gguf["qwen2"]), str(llama_directory)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == "[]"


def test_gguf_templates_and_context_length(bpe, tmp_path):
    path = tiny_tokenizers.write_bpe_gguf(
        tmp_path / "t.gguf", bpe["llama-bpe"], "llama-bpe", template={"": STYLES["llama3"], "tool_use": STYLES["qwen"]}
    )
    text = load_text(path)
    assert text.context_length == 256
    assert text.eos_ids == text.tokenizer.eos_ids == {text.tokenizer.id_of("<|eos|>")}
    assert text.template.render(CONVERSATIONS["one"]).startswith("<|bos|><|turn|>system\nToday is ")
    assert "<tools>" in text.template.render(CONVERSATIONS["one"], tools=TOOLS)


def test_a_directory_with_one_gguf_is_that_file(bpe_gguf, tmp_path):
    (tmp_path / "any.gguf").symlink_to(bpe_gguf["qwen2"])
    assert load_text(tmp_path).tokenizer.vocab_size == load_text(bpe_gguf["qwen2"]).tokenizer.vocab_size
    (tmp_path / "other.gguf").symlink_to(bpe_gguf["qwen2"])
    with pytest.raises(CheckpointError, match="2 GGUF files"):
        load_text(tmp_path)


def test_a_directory_without_a_model_says_what_a_model_is(tmp_path):
    with pytest.raises(CheckpointError, match=r"no model in this directory.*config\.json.*\.gguf"):
        load_text(tmp_path)


def test_models_without_a_template_get_a_plain_one(llama_directory):
    prompt = load_text(llama_directory).template.render([{"role": "system", "content": "s"}, *CONVERSATIONS["one"]])
    assert prompt == "<|bos|>system: s\n\nuser: Hi! 你好 🎉\n\nassistant:"


def test_models_without_a_template_but_with_its_tokens_get_chatml(bpe, tmp_path):
    engine = tiny_tokenizers.train_bpe("qwen2")
    engine.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    text = load_text(tiny_tokenizers.write_directory(tmp_path, engine, chat_template="  "))
    assert text.template.render([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]) == (
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>assistant\n"
    )
    assert text.eos_ids == {engine.token_to_id("<|eos|>"), engine.token_to_id("<|im_end|>")}


def test_a_broken_template_does_not_stop_a_model_from_loading(bpe, tmp_path):
    directory = tiny_tokenizers.write_directory(tmp_path, bpe["qwen2"], chat_template="{% if %}")
    assert load_text(directory).tokenizer.encode("the cat", add_special=True)


def test_a_template_that_would_compile_for_ever_is_not_compiled(bpe, tmp_path):
    directory = tiny_tokenizers.write_directory(tmp_path, bpe["qwen2"], chat_template="{{ 'x' }}" * 300_000)
    start = time.process_time()
    text = load_text(directory)
    assert time.process_time() - start < 5
    with pytest.raises(InvalidRequest, match="2700000 characters, the limit is"):
        text.template.render([{"role": "user", "content": "x"}])


def test_a_file_that_is_no_gguf_is_refused(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"not a model at all")
    with pytest.raises(CheckpointError, match=r"model\.gguf"):
        load_text(tmp_path / "model.gguf")


def test_smollm2_chats_equal_transformers(smollm2_path, smollm2_theirs):
    with GGUFFile.open(smollm2_path) as file:
        source = file.metadata["tokenizer.chat_template"]
    text = load_text(smollm2_path)
    assert text.context_length == 8192
    assert text.eos_ids == {text.tokenizer.id_of("<|im_end|>")}
    for messages in CONVERSATIONS.values():
        options = {"chat_template": source, "add_generation_prompt": True, "return_dict": False}
        rendered = text.template.render(messages)
        assert rendered == smollm2_theirs.apply_chat_template(messages, tokenize=False, **options)
        want = smollm2_theirs.apply_chat_template(messages, tokenize=True, **options)
        assert text.tokenizer.encode(rendered, add_special=False) == want


def test_smollm2_is_ready_in_half_a_second(smollm2_path):
    """Of processor time, the best of three, since other work may share the machine."""
    ready, encoded = [], []
    for _ in range(3):
        start = time.process_time()
        tokenizer = load_text(smollm2_path).tokenizer
        ready.append(time.process_time() - start)
        tokenizer.encode(long_text(10_000), add_special=True)
        encoded.append(time.process_time() - start - ready[-1])
    assert min(ready) < 0.5
    assert min(encoded) < 0.1
