"""How the pieces of a vocabulary spell bytes: byte-level BPE (GPT-2) and SentencePiece. Owns the two alphabets
and the rule for the start of a text; which token is special, and what an id means, belongs to `tokenizer.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

from octavo.errors import UnsupportedModel

WORD_START = "\u2581"  # SentencePiece writes a space as this character
BYTE_PIECE_CHARS = len("<0xFF>")


class Pieces(Protocol):
    """One alphabet. `added` tokens were put beside the trained vocabulary and are written as plain text."""

    def spell(self, piece: str, *, added: bool) -> bytes:
        """The bytes that the piece stands for anywhere but at the start of a text."""

    def at_start(self, data: bytes) -> bytes:
        """What remains of the bytes of a text's first token: some vocabularies put a space before every text."""


def _byte_of_char() -> Mapping[str, int]:
    """GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the other 68 follow U+0100 in order
    (Radford et al. 2019, `bytes_to_unicode`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table |= {chr(0x100 + index): byte for index, byte in enumerate(others)}
    return MappingProxyType(table)


BYTE_OF_CHAR = _byte_of_char()


class ByteLevelPieces:
    """Byte-level BPE: every character of a trained piece is one byte."""

    def spell(self, piece: str, *, added: bool) -> bytes:
        if added:
            return piece.encode()
        try:
            return bytes([BYTE_OF_CHAR[char] for char in piece])
        except KeyError:
            return piece.encode()

    def at_start(self, data: bytes) -> bytes:
        return data


class SentencePieces:
    """SentencePiece: U+2581 is a space and, with byte fallback, `<0xE4>` is a byte.

    `leading` says how many spaces at the start of a text are the encoder's own: none, one, or all of the first
    token's (`tokenizers`' Metaspace decoder).
    """

    NONE, ONE, FIRST_TOKEN = range(3)

    def __init__(self, *, byte_fallback: bool, leading: int) -> None:
        self._byte_fallback = byte_fallback
        self._leading = leading

    def spell(self, piece: str, *, added: bool) -> bytes:  # noqa: ARG002 (added tokens may hold U+2581 too)
        if self._byte_fallback and len(piece) == BYTE_PIECE_CHARS and piece[:3] == "<0x" and piece[-1] == ">":
            try:
                return bytes.fromhex(piece[3:5])
            except ValueError:
                return piece.encode()
        return piece.replace(WORD_START, " ").encode()

    def at_start(self, data: bytes) -> bytes:
        if self._leading == self.FIRST_TOKEN:
            return data.lstrip(b" ")
        return data[1:] if self._leading == self.ONE and data[:1] == b" " else data


def pieces_of_decoder(state: bytes | None, *, source: str) -> Pieces:
    """The alphabet that a `tokenizers` decoder, given as its JSON state, undoes.

    Raises UnsupportedModel, naming the decoder and `source`, for kinds that no served model uses.
    """
    stages = _stages(json.loads(state)) if state else []
    kinds = [stage["type"] for stage in stages]
    if kinds == ["ByteLevel"]:
        return ByteLevelPieces()
    if kinds == ["Metaspace"]:
        plain = stages[0].get("prepend_scheme") == "never"
        return SentencePieces(byte_fallback=False, leading=SentencePieces.NONE if plain else SentencePieces.FIRST_TOKEN)
    if kinds in (["Replace", "ByteFallback", "Fuse"], ["Replace", "ByteFallback", "Fuse", "Strip"]):
        space, strip = stages[0], stages[3:]
        usual_space = space["pattern"] == {"String": WORD_START} and space["content"] == " "
        usual_strip = not strip or (strip[0]["content"], strip[0]["start"], strip[0]["stop"]) == (" ", 1, 0)
        if usual_space and usual_strip:
            return SentencePieces(byte_fallback=True, leading=SentencePieces.ONE if strip else SentencePieces.NONE)
    raise UnsupportedModel(
        f"{source}: the tokenizer's decoder ({', '.join(kinds) or 'none'}) is neither byte-level BPE nor "
        f"SentencePiece, so its tokens cannot be turned into bytes. Convert the model to one of these."
    )


def _stages(decoder: dict[str, Any]) -> list[dict[str, Any]]:
    """A decoder as a flat list of its stages."""
    if decoder["type"] != "Sequence":
        return [decoder]
    return [stage for inner in decoder["decoders"] for stage in _stages(inner)]
