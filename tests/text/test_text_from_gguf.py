"""GGUF vocabularies give the ids and texts of the tokenizers they were made from: tiny trained ones for every
pre-tokenizer, SentencePiece's own library, and transformers on the real SmolLM2 file.
"""

from __future__ import annotations

import pytest
import sentencepiece
import tiny_tokenizers
from sample_texts import SPECIAL_TEXTS, TEXTS, long_text, mixtures

from octavo.checkpoint.gguf_file import GGUFFile
from octavo.errors import CheckpointError, UnsupportedModel
from octavo.text.from_gguf import tokenizer_from_gguf
from octavo.text.load import load_text
from octavo.text.tokenizer import Tokenizer

VARIED = [*TEXTS, *SPECIAL_TEXTS, *mixtures(250, seed=1), long_text()]


def tokenizer_of(path) -> Tokenizer:
    with GGUFFile.open(path) as file:
        return tokenizer_from_gguf(file.metadata, source=path.name)


@pytest.mark.parametrize("family", tiny_tokenizers.CUTS)
def test_byte_level_ids_and_texts_equal_the_original(family, bpe, bpe_gguf):
    original, ours = bpe[family], tokenizer_of(bpe_gguf[family])
    for text in VARIED:
        ids = original.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, add_special=False) == ids
        assert ours.decode(ids) == original.decode(ids, skip_special_tokens=True)
        assert ours.decode(ids, skip_special=False) == original.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("family", ["llama-bpe", "tekken", "qwen2"])
def test_a_part_that_is_a_token_stays_whole_in_some_families(family):
    """Llama 3 and Tekken look a part up before they merge; no merges lead to "abc" here."""
    tokens = ["a", "b", "c", "bc", "abc", "<|im_end|>"]
    metadata = vocabulary(tokens=tokens, token_type=[1] * 5 + [3], merges=["b c"], pre=family)
    expected = [0, 3] if family == "qwen2" else [4]
    assert tokenizer_from_gguf(metadata, source="x").encode("abc", add_special=False) == expected


def test_added_tokens_are_written_plainly():
    """Their letters are no byte alphabet: \u00ef would be one byte of a broken character there."""
    metadata = vocabulary(tokens=["a", "b", "ab", "<|im_end|>", "<na\u00efve>"], token_type=[1, 1, 1, 3, 4])
    tokenizer = tokenizer_from_gguf(metadata, source="x")
    assert tokenizer.encode("ab<na\u00efve>b", add_special=False) == [2, 4, 1]
    assert tokenizer.decode([2, 4, 1]) == "ab<na\u00efve>b"


def test_sentencepiece_ids_equal_the_sentencepiece_library(sentencepiece_model, tmp_path):
    processor = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model)
    ours = tokenizer_of(tiny_tokenizers.write_sentencepiece_gguf(tmp_path / "spm.gguf", sentencepiece_model))
    for text in [*TEXTS, *mixtures(300, seed=2), long_text()]:
        ids = processor.encode(text)
        assert ours.encode(text, add_special=False) == ids
        assert ours.decode(ids) == text
        assert ours.encode(text, add_special=True) == [processor.bos_id(), *ids]


def test_sentencepiece_without_bytes_joins_unknown_characters(tmp_path):
    model = tiny_tokenizers.train_sentencepiece(byte_fallback=False)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ours = tokenizer_of(tiny_tokenizers.write_sentencepiece_gguf(tmp_path / "spm.gguf", model))
    text = "the \u4e02\u4e04\u4e05 cat \u4e02"
    assert ours.encode(text, add_special=False) == processor.encode(text)
    assert processor.encode(text).count(processor.unk_id()) == 2


def test_sentencepiece_without_space_prefix(sentencepiece_model, tmp_path):
    path = tiny_tokenizers.write_sentencepiece_gguf(
        tmp_path / "spm.gguf", sentencepiece_model, add_space_prefix=False, add_bos_token=False
    )
    ours = tokenizer_of(path)
    for text in TEXTS:
        assert ours.decode(ours.encode(text, add_special=True)) == text
    assert ours.decode(ours.encode(" the", add_special=False)) == " the"


def test_sentencepiece_special_and_user_defined_tokens(sentencepiece_model, tmp_path):
    ours = tokenizer_of(tiny_tokenizers.write_sentencepiece_gguf(tmp_path / "spm.gguf", sentencepiece_model))
    ids = ours.encode("<|turn|>the<tool>", add_special=False)
    assert ids[0] == ours.id_of("<|turn|>")
    assert ids[-1] == ours.id_of("<tool>")
    assert ours.decode(ids) == "the<tool>"
    assert ours.decode(ids, skip_special=False) == "<|turn|> the<tool>"


@pytest.mark.parametrize("bos", [True, False, None])
@pytest.mark.parametrize("eos", [True, False, None])
@pytest.mark.parametrize("family", ["llama-bpe", "smollm"])
def test_bos_and_eos_follow_the_file(bpe, tmp_path, family, bos, eos):
    """Where the file says nothing, Llama 3 vocabularies open a text with BOS and the others do not."""
    flags = {key: flag for key, flag in (("add_bos_token", bos), ("add_eos_token", eos)) if flag is not None}
    ours = tokenizer_of(tiny_tokenizers.write_bpe_gguf(tmp_path / "t.gguf", bpe[family], family, **flags))
    with_bos = (family == "llama-bpe") if bos is None else bos
    plain = ours.encode("the cat", add_special=False)
    opening = [ours.id_of("<|bos|>")] if with_bos else []
    closing = [ours.id_of("<|eos|>")] if eos else []
    assert ours.encode("the cat", add_special=True) == opening + plain + closing
    assert ours.bos_id == ours.id_of("<|bos|>")
    assert ours.eos_ids == {ours.id_of("<|eos|>")}


def vocabulary(**changes) -> dict:
    """Metadata of a minimal sound BPE vocabulary, with changes; None removes a key."""
    metadata = {
        "model": "gpt2",
        "pre": "qwen2",
        "tokens": ["a", "b", "ab", "<|im_end|>", "<end>"],
        "token_type": [1, 1, 1, 3, 3],
        "merges": ["a b"],
        "eos_token_id": 4,
    }
    metadata.update(changes)
    return {f"tokenizer.ggml.{key}": value for key, value in metadata.items() if value is not None}


def test_end_tokens_are_the_declared_and_the_well_known():
    assert tokenizer_from_gguf(vocabulary(), source="x").eos_ids == {3, 4}
    assert tokenizer_from_gguf(vocabulary(token_type=[1, 1, 1, 1, 3]), source="x").eos_ids == {4}
    assert tokenizer_from_gguf(vocabulary(eot_token_id=2, eom_token_id=1), source="x").eos_ids == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": None}, "tokenizer.ggml.model is missing"),
        ({"tokens": None}, "tokens must be a list of strings"),
        ({"tokens": ["a", 5, "c", "d", "e"]}, "tokens must be a list of strings"),
        ({"tokens": "abcde"}, "tokens must be list"),
        ({"token_type": [1]}, "5 tokens but 1 token types"),
        ({"merges": None}, "merges must be a list of strings"),
        ({"merges": ["a z"]}, "merges do not fit"),
        ({"merges": ["ab"]}, "merges do not fit"),
        ({"eos_token_id": 5}, "eos_token_id is 5, but there are 5 tokens"),
        ({"eos_token_id": -1}, "eos_token_id is -1"),
        ({"bos_token_id": "<s>"}, "bos_token_id must be int"),
        ({"model": "llama"}, "5 tokens but 0 scores"),
        ({"model": "llama", "scores": [0.0] * 4}, "5 tokens but 4 scores"),
    ],
)
def test_contradictory_vocabularies_are_refused(changes, words):
    with pytest.raises(CheckpointError, match=words):
        tokenizer_from_gguf(vocabulary(**changes), source="broken.gguf")


@pytest.mark.parametrize("changes", [{"model": "bert"}, {"model": "t5"}, {"pre": "chatglm-bpe"}])
def test_other_kinds_are_refused_by_name(changes):
    with pytest.raises(UnsupportedModel, match=next(iter(changes.values()))) as caught:
        tokenizer_from_gguf(vocabulary(**changes), source="other.gguf")
    assert "other.gguf" in str(caught.value)


def test_smollm2_equals_transformers(smollm2_path, smollm2_theirs):
    theirs, ours = smollm2_theirs, load_text(smollm2_path).tokenizer
    turns = ["<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n", "a<|endoftext|>b <|im_end|> "]
    for text in [*TEXTS, *turns, *mixtures(250, seed=3), long_text()]:
        ids = theirs.encode(text, add_special_tokens=True)
        assert ours.encode(text, add_special=True) == ids
        for skip in (True, False):
            expected = theirs.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
            assert ours.decode(ids, skip_special=skip) == expected
    assert ours.eos_ids == {theirs.eos_token_id}
