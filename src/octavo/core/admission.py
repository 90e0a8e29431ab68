"""What a request must satisfy to be queued, and the sequences it becomes. Refuses what could never be served."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.core.block_pool import BlockPool
from octavo.core.sequence import Sequence
from octavo.errors import ContextLengthExceeded, InvalidRequest
from octavo.types import Request


@dataclass(frozen=True, slots=True)
class Limits:
    """The scheduler's bounds. A step computes at most `rows` + `chunk` tokens: one for each sequence that has
    caught up, and `chunk` more of prompts (or of tokens to recompute)."""

    rows: int  # sequences running at once
    chunk: int  # prompt tokens in one step, over all sequences
    max_len: int  # prompt + generated tokens of one sequence
    vocab: int  # token ids lie in range(vocab)
    queue: int = 1024  # sequences waiting at most
    watermark: int = 1  # blocks that admission leaves free for the growth of those running

    def __post_init__(self) -> None:
        if min(self.rows, self.chunk, self.queue, self.vocab) < 1 or self.max_len < 2 or self.watermark < 0:
            raise ValueError(f"limits must be positive: {self}")


def sequences_for(
    request: Request, limits: Limits, pool: BlockPool, eos_ids: frozenset[int], arrival: int
) -> list[Sequence]:
    """One sequence per choice, the first of which computes the prompt. They share one list of tokens as long as they
    wait: many choices of a long prompt must not cost its memory many times. Raises InvalidRequest."""
    max_new = _room(request, limits, pool)
    params = request.params
    stop_ids = frozenset(params.stop_token_ids)
    if not params.ignore_eos:
        stop_ids |= eos_ids
    known = request.prompt + request.generated
    return [Sequence(request, request.choice + i, arrival, max_new, stop_ids, known) for i in range(params.n)]


def _room(request: Request, limits: Limits, pool: BlockPool) -> int:
    """How many tokens the request may generate, after checking that its longest possible course fits."""
    prompt_tokens = len(request.prompt)
    if prompt_tokens == 0:
        raise InvalidRequest("the prompt is empty: it must hold at least one token", param="prompt")
    known = request.prompt + request.generated
    if min(known) < 0 or max(known) >= limits.vocab:
        raise InvalidRequest(f"prompt token ids must lie between 0 and {limits.vocab - 1}", param="prompt")
    if request.generated and request.params.n > 1:
        raise InvalidRequest("a request that resumes after generated tokens has one choice", param="n")
    # The last token is never fed back, so a pool of s slots serves sequences of s + 1 tokens.
    context = min(limits.max_len, pool.total * pool.block_size + 1)
    if prompt_tokens >= context:
        raise ContextLengthExceeded(prompt_tokens=prompt_tokens, context_length=context)
    max_tokens = request.params.max_tokens
    if max_tokens is None:
        max_tokens = context - prompt_tokens
    if prompt_tokens + max_tokens > context:
        raise ContextLengthExceeded(
            prompt_tokens=prompt_tokens, context_length=context, max_tokens=max_tokens, param="max_tokens"
        )
    if len(request.generated) >= max_tokens:
        raise InvalidRequest("nothing is left to generate: max_tokens is already reached", param="max_tokens")
    return max_tokens
