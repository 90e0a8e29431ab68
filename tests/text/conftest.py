"""Fixtures for text: trained tiny tokenizers (once per session) and the directories and files made from them."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_tokenizers
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import Sequence
from transformers import AutoTokenizer, PreTrainedTokenizerFast


@pytest.fixture(scope="session")
def bpe() -> dict[str, Tokenizer]:
    """One trained byte-level tokenizer per pre-tokenizer family."""
    return {family: tiny_tokenizers.train_bpe(family) for family in tiny_tokenizers.CUTS}


@pytest.fixture(scope="session")
def sentencepiece_model() -> bytes:
    return tiny_tokenizers.train_sentencepiece()


@pytest.fixture(scope="session")
def bpe_gguf(bpe, tmp_path_factory) -> dict[str, Path]:
    """The same tokenizers as GGUF files."""
    folder = tmp_path_factory.mktemp("gguf")
    return {
        family: tiny_tokenizers.write_bpe_gguf(folder / f"{family}.gguf", engine, family)
        for family, engine in bpe.items()
    }


@pytest.fixture(scope="session")
def llama_directory(bpe, tmp_path_factory) -> Path:
    """A directory with a byte-level tokenizer in Llama 3's style."""
    return tiny_tokenizers.write_directory(tmp_path_factory.mktemp("llama3"), bpe["llama-bpe"])


@pytest.fixture(scope="session")
def smollm2_theirs(smollm2_path) -> PreTrainedTokenizerFast:
    """transformers' tokenizer of the real model. It reads the file's vocabulary but not its pre-tokenizer's name, so
    that is set from the model's published tokenizer.json: digits one by one, then GPT-2's expression."""
    theirs = AutoTokenizer.from_pretrained(str(smollm2_path.parent), gguf_file=smollm2_path.name)
    theirs.backend_tokenizer.pre_tokenizer = Sequence(tiny_tokenizers.CUTS["smollm"])
    return theirs
