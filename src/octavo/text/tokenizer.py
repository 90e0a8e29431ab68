"""Text to token ids and back, over a `tokenizers` engine. Owns what an id means: its bytes, whether it is special,
whether it ends an answer. How the engine was built from files is `from_directory.py` and `from_gguf.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

import tokenizers

from octavo.errors import InvalidRequest
from octavo.text.pieces import pieces_of_decoder

# Tokens that end a chat turn whatever the checkpoint declares; counted only where they are special.
END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end_of_turn|>")


class Tokenizer:
    """One model's vocabulary. Stateless after construction apart from a memo, so threads may share it.

    `eos_ids` are the declared end tokens plus the special ones among END_OF_TURN; `bos_id` is None where a text
    has no opening token. Raises UnsupportedModel for an engine that is neither byte-level nor SentencePiece.
    """

    def __init__(
        self, engine: tokenizers.Tokenizer, *, bos_id: int | None, eos_ids: Iterable[int], source: str
    ) -> None:
        engine.no_truncation()  # a tokenizer.json may carry its training settings
        engine.no_padding()
        self._engine = engine
        decoder = engine.decoder
        self._pieces = pieces_of_decoder(decoder.__getstate__() if decoder else None, source=source)
        added = engine.get_added_tokens_decoder()
        self._added = frozenset(added)
        self._special = frozenset(id_ for id_, token in added.items() if token.special)
        self.vocab_size: int = max(engine.get_vocab_size(with_added_tokens=True), max(added, default=-1) + 1)
        self._bytes: list[bytes | None] = [None] * self.vocab_size
        self.bos_id = bos_id
        turn_ends = self._special.intersection(engine.token_to_id(token) for token in END_OF_TURN)
        self.eos_ids: frozenset[int] = turn_ends.union(eos_ids)

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Token ids of the text. Special tokens written in it are recognised; `add_special` adds those that the
        model wants around every text (a rendered chat template carries its own).

        Raises InvalidRequest for text that is not Unicode (half of a surrogate pair).
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                f"The text holds half of a surrogate pair (U+{ord(text[error.start]):04X}) at character "
                f"{error.start}; send valid Unicode."
            ) from None
        # Unlike `encode`, the batch call releases the GIL, and "fast" skips offsets that nobody reads.
        ids: list[int] = self._engine.encode_batch_fast([text], add_special_tokens=add_special)[0].ids
        return ids

    def token_bytes(self, id_: int) -> bytes:
        """The bytes that a token stands for; empty for an id that the vocabulary leaves unassigned."""
        if not 0 <= id_ < self.vocab_size:
            return b""
        data = self._bytes[id_]
        if data is None:
            data = self._bytes[id_] = self._spell(id_)
        return data

    def at_start(self, data: bytes) -> bytes:
        """The bytes of a text's first token without the space that a SentencePiece encoder puts before it."""
        return self._pieces.at_start(data)

    def is_special(self, id_: int) -> bool:
        """Whether the token is a control token, left out of decoded text."""
        return id_ in self._special

    def id_of(self, token: str) -> int | None:
        """The id of a token by its exact text, or None."""
        id_: int | None = self._engine.token_to_id(token)
        return id_

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of the ids. Bytes that are not UTF-8 become U+FFFD as in `bytes.decode(errors="replace")`."""
        parts = [self.token_bytes(id_) for id_ in ids if not (skip_special and id_ in self._special)]
        first = next((index for index, part in enumerate(parts) if part), None)
        if first is not None:
            parts[first] = self._pieces.at_start(parts[first])
        return b"".join(parts).decode(errors="replace")

    def _spell(self, id_: int) -> bytes:
        piece = self._engine.id_to_token(id_)
        if piece is None:
            return b""
        return self._pieces.spell(piece, added=id_ in self._added)
