"""Incremental text equals the text of all tokens, however they arrive: byte-level and SentencePiece vocabularies,
broken UTF-8, special tokens, transformers' decode.
"""

from __future__ import annotations

import time

import pytest
import tiny_tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_texts import SPECIAL_TEXTS, TEXTS, long_text
from transformers import AutoTokenizer

from octavo.text.detokenizer import Detokenizer
from octavo.text.load import load_text
from octavo.text.tokenizer import Tokenizer

SIZE = 700
id_lists = st.lists(st.integers(0, SIZE + 5), max_size=30)


@pytest.fixture(scope="module")
def byte_level(bpe_gguf) -> Tokenizer:
    return load_text(bpe_gguf["llama-bpe"]).tokenizer


@pytest.fixture(scope="module")
def sentence_piece(sentencepiece_model, tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp("spm") / "spm.gguf"
    return load_text(tiny_tokenizers.write_sentencepiece_gguf(path, sentencepiece_model)).tokenizer


def streamed(tokenizer: Tokenizer, ids: list[int], step: int, **options: bool) -> str:
    detokenizer = Detokenizer(tokenizer, **options)
    parts = [detokenizer.push(ids[start : start + step]) for start in range(0, len(ids), step)]
    return "".join(parts) + detokenizer.finish()


@pytest.mark.parametrize("kind", ["byte_level", "sentence_piece"])
@given(ids=id_lists, step=st.integers(1, 5), skip=st.booleans())
@settings(max_examples=300)
def test_any_tokens_in_any_chunks_equal_decode_of_all(request, kind, ids, step, skip):
    """Random ids, most of them broken UTF-8, some beyond the vocabulary."""
    tokenizer = request.getfixturevalue(kind)
    assert streamed(tokenizer, ids, step, skip_special=skip) == tokenizer.decode(ids, skip_special=skip)


@given(data=st.binary(max_size=40), step=st.integers(1, 4))
def test_broken_bytes_equal_python_decoding_of_the_whole(byte_level, data, step):
    ids = [byte_level.id_of(piece) for piece in map(_piece_of_byte, data)]
    assert streamed(byte_level, ids, step) == data.decode(errors="replace")


@given(data=st.binary(max_size=40), step=st.integers(1, 4))
def test_sentencepiece_bytes_equal_python_decoding_of_the_whole(sentence_piece, data, step):
    """After a letter, so that a leading space is no matter."""
    ids = [sentence_piece.id_of("a"), *(sentence_piece.id_of(f"<0x{byte:02X}>") for byte in data)]
    assert streamed(sentence_piece, ids, step) == "a" + data.decode(errors="replace")


def test_texts_come_back_whole(byte_level, sentence_piece):
    for tokenizer in (byte_level, sentence_piece):
        for text in [*TEXTS, long_text()]:
            ids = tokenizer.encode(text, add_special=True)
            assert streamed(tokenizer, ids, 1) == text


def test_equals_transformers_decode(llama_directory):
    theirs, ours = AutoTokenizer.from_pretrained(llama_directory), load_text(llama_directory).tokenizer
    for text in [*TEXTS, *SPECIAL_TEXTS]:
        ids = theirs.encode(text)
        expected = theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert streamed(ours, ids, 1) == expected


def test_a_character_waits_for_its_last_byte(byte_level):
    detokenizer = Detokenizer(byte_level)
    ids = [byte_level.id_of(piece) for piece in map(_piece_of_byte, "🎉".encode())]
    assert [detokenizer.push([id_]) for id_ in ids] == ["", "", "", "🎉"]
    assert detokenizer.finish() == ""
    assert Detokenizer(byte_level).push(ids[:3]) == ""
    cut_short = Detokenizer(byte_level)
    cut_short.push(ids[:3])
    assert cut_short.finish() == "\ufffd"


def test_leading_space_of_a_continued_text_is_kept(sentence_piece):
    """A completion goes on from its prompt: the space before its first word belongs to the answer."""
    ids = sentence_piece.encode("the cat", add_special=False)
    assert streamed(sentence_piece, ids, 1) == "the cat"
    assert streamed(sentence_piece, ids, 1, continues=True) == " the cat"


def test_tokens_that_stand_for_nothing_do_not_begin_the_text(sentence_piece):
    ids = [sentence_piece.vocab_size + 1, *sentence_piece.encode("the", add_special=False)]
    assert streamed(sentence_piece, ids, 1) == sentence_piece.decode(ids) == "the"


def test_time_per_token_does_not_grow(byte_level):
    ids = byte_level.encode(long_text(), add_special=False) * 4
    detokenizer = Detokenizer(byte_level)
    times = []
    for quarter in range(4):
        start = time.process_time()
        for id_ in ids[quarter * len(ids) // 4 : (quarter + 1) * len(ids) // 4]:
            detokenizer.push([id_])
        times.append(time.process_time() - start)
    assert min(times[2:]) < 4 * max(times[:2])


def _piece_of_byte(byte: int) -> str:
    """GPT-2's character for a byte, derived from its definition: the bytes that do not print follow U+0100."""
    prints = [b for b in range(256) if chr(b).isprintable() and b != 0x20 and b != 0xAD]
    return chr(byte) if byte in prints else chr(0x100 + [b for b in range(256) if b not in prints].index(byte))
