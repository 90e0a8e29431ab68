"""The gold model: a request run alone, token by token, against a cache without end.

Knows no blocks, no plans and no scheduler. Whatever else an engine serves, however it chunks, shares, preempts
or forks, each choice must produce exactly these tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from octavo.sim.model import Context, FakeModel
from octavo.types import FinishReason, Request


@dataclass(frozen=True, slots=True)
class LoneRun:
    """What one choice must deliver. `tokens` leaves out Request.generated and the token that stopped it."""

    tokens: list[int]
    finish: FinishReason
    stop_token: int | None = None


def lone_run(
    request: Request, model: FakeModel, *, max_len: int, eos_ids: Iterable[int] = (), choice: int = 0
) -> LoneRun:
    """Run choice number `choice` of `request.params.n`. `max_len` bounds prompt + generated tokens."""
    params = request.params
    stop_ids = set(params.stop_token_ids)
    if not params.ignore_eos:
        stop_ids.update(eos_ids)
    limit = max_len if params.max_tokens is None else len(request.prompt) + params.max_tokens
    known = len(request.prompt) + len(request.generated)
    tokens = [*request.prompt, *request.generated]
    context = Context()
    for position, token in enumerate(tokens):
        context.read(context.slot(token, position))
    while True:
        token = model.next_token(context, params, request.seed, request.choice + choice, len(tokens))
        if token in stop_ids:
            return LoneRun(tokens[known:], FinishReason.STOP, token)
        context.read(context.slot(token, len(tokens)))
        tokens.append(token)
        if len(tokens) >= limit:
            return LoneRun(tokens[known:], FinishReason.LENGTH)
