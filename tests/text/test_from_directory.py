"""Model directories give transformers' ids, texts and templates: byte-level and SentencePiece, the files that say
which tokens are special, and what is refused.
"""

from __future__ import annotations

import json

import pytest
import tiny_tokenizers
from sample_texts import SPECIAL_TEXTS, TEXTS, long_text, mixtures
from tokenizers import Tokenizer as Engine
from tokenizers import models
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from octavo.errors import CheckpointError, InvalidRequest, UnsupportedModel
from octavo.text.load import load_text

VARIED = [*TEXTS, *SPECIAL_TEXTS, *mixtures(150, seed=5), long_text()]


def assert_same(directory, texts=VARIED) -> None:
    theirs, ours = AutoTokenizer.from_pretrained(directory), load_text(directory).tokenizer
    for text in texts:
        for special in (True, False):
            assert ours.encode(text, add_special=special) == theirs.encode(text, add_special_tokens=special)
        ids = theirs.encode(text)
        for skip in (True, False):
            expected = theirs.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
            assert ours.decode(ids, skip_special=skip) == expected


@pytest.mark.parametrize("family", tiny_tokenizers.CUTS)
def test_byte_level_equals_transformers(family, bpe, tmp_path):
    assert_same(tiny_tokenizers.write_directory(tmp_path, bpe[family]))


@pytest.mark.parametrize("flags", [{"add_bos_token": True}, {"add_bos_token": False, "add_eos_token": True}])
@pytest.mark.parametrize("opening", [True, False])
def test_tokenizer_json_alone_says_what_surrounds_a_text(flags, opening, bpe, tmp_path):
    """As in transformers since version 5: flags in tokenizer_config.json do not override tokenizer.json."""
    engine = Engine.from_str(bpe["qwen2"].to_str())
    if opening:
        engine.post_processor = TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", 0)])
    assert_same(tiny_tokenizers.write_directory(tmp_path, engine, **flags), TEXTS)


@pytest.fixture(scope="module")
def sentencepiece_spec(sentencepiece_model, tmp_path_factory) -> dict:
    """transformers' conversion of a SentencePiece model, as the contents of tokenizer.json."""
    path = tmp_path_factory.mktemp("converted")
    (path / "tokenizer.model").write_bytes(sentencepiece_model)
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizer", **names}))
    AutoTokenizer.from_pretrained(path).save_pretrained(path / "out")
    return json.loads((path / "out" / "tokenizer.json").read_text())


PREPEND = [
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"normalizer": {"type": "Sequence", "normalizers": PREPEND}, "pre_tokenizer": None},
        {"decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}},
        {"decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": False}},
    ],
    ids=["as converted", "Llama 2", "Metaspace decoder", "Metaspace decoder without prefix"],
)
def test_sentencepiece_equals_transformers(sentencepiece_spec, tmp_path, changes):
    """The ways in which converted SentencePiece tokenizers are written."""
    engine = Engine.from_str(json.dumps({**sentencepiece_spec, **changes}))
    assert_same(tiny_tokenizers.write_directory(tmp_path, engine, bos_token="<s>", eos_token="</s>"))


def test_training_settings_in_tokenizer_json_do_not_cut_prompts(bpe, tmp_path):
    engine = Engine.from_str(bpe["qwen2"].to_str())
    engine.enable_truncation(8)
    engine.enable_padding(length=4000)
    ours = load_text(tiny_tokenizers.write_directory(tmp_path, engine)).tokenizer
    for text in (long_text(), "short"):
        assert ours.encode(text, add_special=True) == bpe["qwen2"].encode(text).ids


def test_ordinary_pieces_named_as_special_are_special(bpe, tmp_path):
    """Added tokens keep the flag that tokenizer.json gives them; other pieces become special; none is invented."""
    names = {"pad_token": "in", "unk_token": "<absent>", "extra_special_tokens": ["<tool>", "th"]}
    directory = tiny_tokenizers.write_directory(tmp_path, bpe["smollm"], **names)
    ours = load_text(directory).tokenizer
    special = {name: ours.is_special(ours.id_of(name)) for name in ("in", "th", "<tool>", "at")}
    assert special == {"in": True, "th": True, "<tool>": False, "at": False}
    assert ours.id_of("<absent>") is None
    assert ours.vocab_size == bpe["smollm"].get_vocab_size()
    assert_same(directory)


def test_end_tokens_come_from_every_file(bpe, tmp_path):
    directory = tiny_tokenizers.write_directory(tmp_path, bpe["qwen2"])
    eos = bpe["qwen2"].token_to_id("<|eos|>")
    assert load_text(directory).eos_ids == {eos}
    (directory / "config.json").write_text(json.dumps({"eos_token_id": 7, "max_position_embeddings": 512}))
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 5]}))
    text = load_text(directory)
    assert text.eos_ids == text.tokenizer.eos_ids == {eos, 3, 5, 7}
    assert text.context_length == 512
    assert text.tokenizer.bos_id == bpe["qwen2"].token_to_id("<|bos|>")


def test_special_tokens_map_and_token_objects(bpe, tmp_path):
    directory = tiny_tokenizers.write_directory(tmp_path, bpe["qwen2"], eos_token={"content": "<|end|>"})
    (directory / "special_tokens_map.json").write_text(json.dumps({"eos_token": "<|eos|>", "pad_token": "in"}))
    text = load_text(directory)
    assert text.eos_ids == {text.tokenizer.id_of("<|end|>")}
    assert text.tokenizer.is_special(text.tokenizer.id_of("in"))


@pytest.mark.parametrize("special", [True, False])
def test_half_a_surrogate_pair_is_refused(llama_directory, special):
    with pytest.raises(InvalidRequest, match=r"U\+D83D\) at character 3"):
        load_text(llama_directory).tokenizer.encode("ab \ud83d!", add_special=special)


def test_a_directory_without_tokenizer_json_says_how_to_make_one(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(
        CheckpointError, match=r"tokenizer.json is missing\. Write one with transformers: AutoTokenizer"
    ):
        load_text(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"missing; tokenizer\.model is there"):
        load_text(tmp_path)
    with pytest.raises(CheckpointError, match="no such file or directory"):
        load_text(tmp_path / "absent")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("tokenizer.json", b"{", "not a tokenizer"),
        ("tokenizer_config.json", b"[1]", "must hold a JSON object"),
        ("tokenizer_config.json", b"{", "not JSON"),
        ("tokenizer_config.json", b"[" * 100_000, "not JSON"),
        ("generation_config.json", b'{"eos_token_id": "two"}', "eos_token_id must be"),
        ("config.json", b'{"eos_token_id": [1, -2]}', "eos_token_id must be"),
        ("config.json", b"\xff\xfe", "cannot be read"),
        ("tokenizer_config.json", b'{"chat_template": [{"name": "x"}]}', "name and template"),
    ],
)
def test_damaged_files_are_named(bpe, tmp_path, name, content, words):
    directory = tiny_tokenizers.write_directory(tmp_path, bpe["qwen2"])
    (directory / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=words) as caught:
        load_text(directory)
    assert name in str(caught.value)


@pytest.mark.parametrize("tokens", ["5", '"x"', "[[1], 7]", '{"a": 1}'])
def test_special_tokens_of_another_type_are_none(bpe, tmp_path, tokens):
    directory = tiny_tokenizers.write_directory(tmp_path, bpe["qwen2"])
    before = load_text(directory).eos_ids
    (directory / "special_tokens_map.json").write_text(f'{{"additional_special_tokens": {tokens}}}')
    assert load_text(directory).eos_ids == before


def test_other_decoders_are_refused_by_name(tmp_path):
    engine = Engine(models.WordLevel({"a": 0}))
    with pytest.raises(UnsupportedModel, match=r"tokenizer\.json: the tokenizer's decoder \(none\)"):
        load_text(tiny_tokenizers.write_directory(tmp_path, engine))


def test_ids_outside_the_vocabulary_stand_for_nothing(llama_directory):
    tokenizer = load_text(llama_directory).tokenizer
    assert [tokenizer.token_bytes(id_) for id_ in (-1, tokenizer.vocab_size, 10**9)] == [b"", b"", b""]
