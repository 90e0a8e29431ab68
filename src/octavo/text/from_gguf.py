"""A tokenizer from the metadata of a GGUF file. Owns the meaning of the `tokenizer.ggml.*` keys; reading the file is
`checkpoint/gguf_file.py`, the pre-tokenizers are `pretokenizers.py`.

Source: the GGUF specification, ggml/docs/gguf.md, section "Tokenizer".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, processors

from octavo.errors import CheckpointError, UnsupportedModel
from octavo.text.pieces import WORD_START
from octavo.text.pretokenizers import PRE_TOKENIZERS
from octavo.text.score_merges import merges_from_scores
from octavo.text.tokenizer import Tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # tokenizer.ggml.token_type
PREFIX = "tokenizer.ggml."
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


def tokenizer_from_gguf(metadata: Mapping[str, Any], *, source: str) -> Tokenizer:
    """The tokenizer described by `tokenizer.ggml.*`; `source` names the file in errors.

    Raises UnsupportedModel for other kinds than "gpt2" (byte-level BPE) and "llama" (SentencePiece) and for
    unknown pre-tokenizers; CheckpointError for keys that are missing or contradict each other.
    """
    vocabulary = GGUFVocabulary(metadata, source)
    kind = vocabulary.get("model", str)
    if kind == "gpt2":
        engine, add_bos = _byte_level(vocabulary)
    elif kind == "llama":
        engine, add_bos = _sentence_piece(vocabulary), True
    elif kind is None:
        raise CheckpointError(f"{source}: no tokenizer inside (the key {PREFIX}model is missing); convert it again")
    else:
        raise UnsupportedModel(f"{source}: tokenizer kind {kind!r} is not supported; Octavo reads gpt2 and llama")
    engine.add_tokens(
        [
            AddedToken(token, special=type_ != USER_DEFINED, normalized=False)
            for token, type_ in zip(vocabulary.tokens, vocabulary.types, strict=True)
            if type_ in (UNKNOWN, CONTROL, USER_DEFINED) and token
        ]
    )
    bos_id, eos_id = vocabulary.id_at("bos_token_id"), vocabulary.id_at("eos_token_id")
    opening = bos_id if vocabulary.flag("add_bos_token", add_bos) else None
    closing = eos_id if vocabulary.flag("add_eos_token", False) else None
    _surround(engine, opening, closing)
    ends = [id_ for key in END_KEYS if (id_ := vocabulary.id_at(key)) is not None]
    return Tokenizer(engine, bos_id=bos_id, eos_ids=ends, source=source)


class GGUFVocabulary:
    """Checked access to the tokenizer keys of one file."""

    def __init__(self, metadata: Mapping[str, Any], source: str) -> None:
        self._metadata = metadata
        self.source = source
        self.tokens: list[str] = self._strings("tokens")
        self.types: list[int] = self._list("token_type") or [NORMAL] * len(self.tokens)
        if len(self.types) != len(self.tokens):
            raise self.fault(f"{len(self.tokens)} tokens but {len(self.types)} token types")
        self.ids = {token: id_ for id_, token in enumerate(self.tokens)}

    def get(self, key: str, kind: type) -> Any:
        """The value at a key, or None. CheckpointError when it is of another type."""
        value = self._metadata.get(PREFIX + key)
        if value is not None and not isinstance(value, kind):
            raise self.fault(f"{PREFIX}{key} must be {kind.__name__}, got {value!r:.50}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """A yes or no, by default `default`."""
        value = self.get(key, bool)
        return default if value is None else bool(value)

    def id_at(self, key: str) -> int | None:
        """A token id, or None where the file names none."""
        id_: int | None = self.get(key, int)
        if id_ is not None and not 0 <= id_ < len(self.tokens):
            raise self.fault(f"{PREFIX}{key} is {id_}, but there are {len(self.tokens)} tokens")
        return id_

    def merges(self) -> list[tuple[str, str]]:
        """BPE merges, most urgent first. The byte alphabet has no space, so the first one parts the two pieces."""
        parted = (merge.partition(" ") for merge in self._strings("merges"))
        return [(left, right) for left, _, right in parted]

    def scores(self) -> list[float]:
        """One score per token; a piece with a higher score is merged first."""
        scores = self._list("scores")
        if len(scores) != len(self.tokens):
            raise self.fault(f"{len(self.tokens)} tokens but {len(scores)} scores")
        return scores

    def fault(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.source}: {what}; the file is damaged or was converted wrongly")

    def _list(self, key: str) -> list[Any]:
        value: list[Any] = self.get(key, list) or []
        return value

    def _strings(self, key: str) -> list[str]:
        value = self._list(key)
        if not value or not all(isinstance(item, str) for item in value):
            raise self.fault(f"{PREFIX}{key} must be a list of strings")
        return value


def _surround(engine: tokenizers.Tokenizer, opening: int | None, closing: int | None) -> None:
    """Let the engine put these tokens around a text that is encoded with special tokens."""
    edges = [(engine.id_to_token(id_), id_) for id_ in (opening, closing) if id_ is not None]
    before = [engine.id_to_token(opening)] if opening is not None else []
    after = [engine.id_to_token(closing)] if closing is not None else []
    engine.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *after], pair=[*before, "$A", "$B", *after], special_tokens=edges
    )


def _byte_level(vocabulary: GGUFVocabulary) -> tuple[tokenizers.Tokenizer, bool]:
    """The engine, and whether a text starts with BOS where the file does not say."""
    name = vocabulary.get("pre", str) or "default"
    cut = PRE_TOKENIZERS.get(name)
    if cut is None:
        raise UnsupportedModel(
            f"{vocabulary.source}: pre-tokenizer {name!r} is not supported; Octavo knows "
            f"{', '.join(PRE_TOKENIZERS)}. Use the model's Hugging Face directory instead."
        )
    try:
        model = models.BPE(vocabulary.ids, vocabulary.merges(), ignore_merges=cut.ignore_merges)
    except Exception as error:  # tokenizers raises bare Exception, for example for a merge of unknown tokens
        raise vocabulary.fault(f"the BPE merges do not fit the vocabulary ({error})") from error
    engine = tokenizers.Tokenizer(model)
    normalizer = cut.normalizer()
    if normalizer is not None:
        engine.normalizer = normalizer
    engine.pre_tokenizer = cut.build()
    engine.decoder = decoders.ByteLevel()
    return engine, cut.add_bos


def _sentence_piece(vocabulary: GGUFVocabulary) -> tokenizers.Tokenizer:
    """SentencePiece BPE: merges in order of score, a space before every text, unknown characters as bytes."""
    pieces = {
        token: score
        for token, score, type_ in zip(vocabulary.tokens, vocabulary.scores(), vocabulary.types, strict=True)
        if type_ == NORMAL
    }
    unknown = vocabulary.id_at("unknown_token_id")
    model = models.BPE(
        vocabulary.ids,
        merges_from_scores(pieces, vocabulary.ids),
        unk_token=vocabulary.tokens[unknown] if unknown is not None else None,
        fuse_unk=True,
        byte_fallback=BYTE in vocabulary.types,
    )
    engine = tokenizers.Tokenizer(model)
    spaces: list[normalizers.Normalizer] = [normalizers.Replace(" ", WORD_START)]
    undo: list[decoders.Decoder] = [decoders.Replace(WORD_START, " "), decoders.ByteFallback(), decoders.Fuse()]
    if vocabulary.flag("add_space_prefix", True):
        spaces.insert(0, normalizers.Prepend(WORD_START))
        undo.append(decoders.Strip(" ", 1, 0))
    engine.normalizer = normalizers.Sequence(spaces)
    engine.decoder = decoders.Sequence(undo)
    return engine
