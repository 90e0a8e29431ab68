"""FakeModel: what a KV slot holds and which token comes next, with hashes in the place of arithmetic.

Like a real model it depends on everything it reads and on nothing else: a slot holds a digest of its token, its
position and all slots before it, and the next token is a digest of all slots up to the last. One stale, missing
or misplaced slot changes every token after it. It knows nothing of blocks; who reads through what is the
caller's business.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import blake2b

from octavo.types import SamplingParams, TokenLogprob

SLOT_BYTES = 8
_EOS_SCALE = 1 << 20


class Context:
    """The slots of one sequence read so far, in order of position."""

    def __init__(self) -> None:
        self._read = blake2b(digest_size=SLOT_BYTES)

    def read(self, slots: bytes | bytearray | memoryview) -> None:
        """Read the next slots, SLOT_BYTES each."""
        self._read.update(slots)

    def slot(self, token: int, position: int) -> bytes:
        """What the slot of `token` at `position` holds after this context."""
        return self._digest(b"slot", token, position)

    def noise(self, *key: int) -> int:
        """A number below 2**64 that depends on all that was read and on `key`."""
        return int.from_bytes(self._digest(b"next", *key), "little")

    def _digest(self, purpose: bytes, *key: int) -> bytes:
        digest = self._read.copy()
        digest.update(purpose + struct.pack(f"<{len(key)}q", *key))
        return digest.digest()


@dataclass(frozen=True, slots=True)
class FakeModel:
    """Tokens lie in range(vocab), vocab >= 2. The next one is `eos_id` with probability `eos_rate`, and any other
    token otherwise."""

    vocab: int = 1000
    eos_id: int = 0
    eos_rate: float = 0.0

    def next_token(self, context: Context, params: SamplingParams, seed: int, choice: int, position: int) -> int:
        """The token at `position`, after a context that holds all slots before it. Seed and choice matter
        only when sampling is asked for."""
        noise = context.noise(position) if params.greedy else context.noise(seed, choice, position)
        chance, token = noise % _EOS_SCALE, noise // _EOS_SCALE
        if chance < self.eos_rate * _EOS_SCALE:
            return self.eos_id
        token %= self.vocab - 1
        return token + (token >= self.eos_id)

    def logprob(self, token: int, count: int) -> TokenLogprob:
        """The chosen token as the most likely one, and its neighbours in the vocabulary after it."""
        top = [((token + i) % self.vocab, -0.5 - i) for i in range(min(count, self.vocab))]
        return TokenLogprob(token, -0.5, top)
