"""Token ids to text while they arrive. Owns the bytes of a character that is not complete yet; stop strings are
`stop.py`.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from octavo.text.tokenizer import Tokenizer


class Detokenizer:
    """The text of one choice. O(bytes of the token) per token, whatever came before.

    Everything that `push` and `finish` return, joined, equals `tokenizer.decode` of all tokens. With
    `continues` the tokens carry on a text that was already begun (a completion of a prompt), so a leading space
    is kept.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True, continues: bool = False) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._started = continues
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, tokens: Iterable[int]) -> str:
        """The text that these tokens complete; an unfinished character waits for its other bytes."""
        tokenizer, parts = self._tokenizer, []
        for token in tokens:
            if self._skip_special and tokenizer.is_special(token):
                continue
            data = tokenizer.token_bytes(token)
            if data and not self._started:
                self._started = True
                data = tokenizer.at_start(data)
            parts.append(data)
        return self._utf8.decode(b"".join(parts))

    def finish(self) -> str:
        """U+FFFD if the tokens ended inside a character, else nothing."""
        return self._utf8.decode(b"", final=True)
