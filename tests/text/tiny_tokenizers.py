"""Tiny tokenizers in the style of each family, trained here: the oracle for directories and GGUF files. Their
pre-tokenizers are spelled out as the families' tokenizer.json files do, independently of the code under test.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import gguf
import sentencepiece
import tokenizers
from sample_texts import corpus
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

SPECIAL = ["<|bos|>", "<|eos|>", "<|turn|>", "<|end|>"]
USER_DEFINED = "<tool>"
VOCABULARY = 700
RAW_BYTES = ByteLevel(add_prefix_space=False, use_regex=False)
GPT2_BYTES = ByteLevel(add_prefix_space=False, use_regex=True)


def _split(*expressions: str) -> list[PreTokenizer]:
    return [Split(Regex(expression), "isolated", invert=False) for expression in expressions]


LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CUTS: dict[str, list[PreTokenizer]] = {
    "gpt-2": [GPT2_BYTES],
    "llama-bpe": [*_split(LLAMA3), RAW_BYTES],
    "qwen2": [*_split(LLAMA3.replace("{1,3}", "")), RAW_BYTES],
    "tekken": [*_split(TEKKEN), RAW_BYTES],
    "smollm": [Digits(individual_digits=True), GPT2_BYTES],
    "deepseek-llm": [
        *_split(
            r"[\r\n]",
            r"\s?[\p{Lu}\p{Ll}\p{Lt}&&[^ა-ჿ𝐀-𝟿]]+",
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            r"\s+$",
            "[一-龥ࠀ-一가-\ud7ff]+",
        ),
        Digits(individual_digits=True),
        RAW_BYTES,
    ],
    "deepseek-coder": [
        *_split(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+"),
        Digits(individual_digits=True),
        RAW_BYTES,
    ],
    "deepseek-v3": [*_split(r"\p{N}{1,3}", r"[一-龥\u3040-ゟ゠-ヿ]+", DEEPSEEK3), RAW_BYTES],
}


def train_bpe(family: str) -> Tokenizer:
    """A byte-level BPE tokenizer of a few hundred pieces, with special tokens and one that is only user-defined."""
    engine = Tokenizer(models.BPE(ignore_merges=family in ("llama-bpe", "tekken")))
    engine.pre_tokenizer = Sequence(CUTS[family])
    engine.decoder = decoders.ByteLevel()
    if family == "qwen2":
        engine.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=ByteLevel.alphabet(), special_tokens=SPECIAL, show_progress=False
    )
    engine.train_from_iterator(corpus(), trainer)
    engine.add_tokens([AddedToken(USER_DEFINED, normalized=False)])
    return engine


def train_sentencepiece(*, byte_fallback: bool = True) -> bytes:
    """The model file of a SentencePiece BPE vocabulary."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for text in corpus() for line in text.split("\n") if line and "\0" not in line]),
        model_writer=model,
        vocab_size=VOCABULARY,
        model_type="bpe",
        byte_fallback=byte_fallback,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        control_symbols=["<|turn|>", "<|end|>"],
        user_defined_symbols=[USER_DEFINED],
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


def write_bpe_gguf(
    path: Path, engine: Tokenizer, pre: str, template: dict[str, str] | None = None, **flags: bool
) -> Path:
    """A GGUF file that holds only the tokenizer and perhaps chat templates by name."""
    state = json.loads(engine.to_str())["model"]
    pieces = [engine.id_to_token(id_) for id_ in range(engine.get_vocab_size())]
    kinds = {**dict.fromkeys(SPECIAL, gguf.TokenType.CONTROL), USER_DEFINED: gguf.TokenType.USER_DEFINED}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(256)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    for name, source in (template or {}).items():
        writer.add_string(f"tokenizer.chat_template.{name}".removesuffix("."), source)
    writer.add_token_list(pieces)
    writer.add_token_types([kinds.get(piece, gguf.TokenType.NORMAL) for piece in pieces])
    writer.add_token_merges([" ".join(pair) for pair in state["merges"]])
    writer.add_bos_token_id(engine.token_to_id("<|bos|>"))
    writer.add_eos_token_id(engine.token_to_id("<|eos|>"))
    return _close(writer, path, flags)


def write_sentencepiece_gguf(path: Path, model: bytes, **flags: bool) -> Path:
    """A GGUF file that holds only the SentencePiece vocabulary."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = range(processor.vocab_size())
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([processor.id_to_piece(id_) for id_ in ids])
    writer.add_token_scores([processor.get_score(id_) for id_ in ids])
    writer.add_token_types([_kind(processor, id_) for id_ in ids])
    writer.add_bos_token_id(processor.bos_id())
    writer.add_eos_token_id(processor.eos_id())
    writer.add_unk_token_id(processor.unk_id())
    return _close(writer, path, flags)


def _kind(processor: sentencepiece.SentencePieceProcessor, id_: int) -> gguf.TokenType:
    if processor.is_unknown(id_):
        return gguf.TokenType.UNKNOWN
    if processor.is_byte(id_):
        return gguf.TokenType.BYTE
    if processor.is_control(id_):
        return gguf.TokenType.CONTROL
    return gguf.TokenType.USER_DEFINED if processor.id_to_piece(id_) == USER_DEFINED else gguf.TokenType.NORMAL


def _close(writer: gguf.GGUFWriter, path: Path, flags: dict[str, bool]) -> Path:
    for key, value in flags.items():
        writer.add_bool(f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_directory(path: Path, engine: tokenizers.Tokenizer, **config: object) -> Path:
    """A model directory with tokenizer.json and tokenizer_config.json."""
    path.mkdir(parents=True, exist_ok=True)
    engine.save(str(path / "tokenizer.json"))
    plain = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|bos|>", "eos_token": "<|eos|>"}
    (path / "tokenizer_config.json").write_text(json.dumps({**plain, **config}))
    return path
