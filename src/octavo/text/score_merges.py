"""BPE merges of a SentencePiece vocabulary, which stores only pieces and scores. Owns that derivation alone."""

from __future__ import annotations

from collections.abc import Mapping


def merges_from_scores(pieces: Mapping[str, float], ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """Every way to make a piece from two others, in the order in which SentencePiece would.

    SentencePiece joins the adjacent pair whose piece scores highest (Kudo & Richardson 2018). A list of pairs
    ordered by the score of what they make lets any BPE engine do the same; pairs that make the same piece
    are ordered by the ids of their halves. Work: the sum of the pieces' lengths.
    """
    ranked = []
    for piece, score in pieces.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in pieces and right in pieces:
                ranked.append((-score, ids[piece], ids[left], ids[right], left, right))
    ranked.sort()
    return [(left, right) for *_, left, right in ranked]
