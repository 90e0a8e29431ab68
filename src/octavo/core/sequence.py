"""Sequence: one choice of one request, and its life in the engine. State only; the scheduler moves it."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.core.block_pool import Node
from octavo.types import Request, Usage


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens catching up with computed tokens.

    Invariants, held by Scheduler.check():
      0 <= computed <= len(tokens) + sampling
      waiting   owns nothing: no blocks, no row, computed == 0, nothing in flight
      running   has a row; its blocks cover `computed` tokens exactly, with no spare block
      finished  is in no queue; it owns its blocks and row only while a launched step may touch them
    """

    request: Request
    choice: int
    arrival: int
    max_new: int  # generated tokens at most; includes Request.generated
    stop_ids: frozenset[int]
    tokens: list[int]  # prompt + generated; append only, and shared by the choices of a request that wait
    computed: int = 0  # tokens whose keys and values are in the cache once all launched steps finish
    in_flight: int = 0  # launched steps not yet committed
    sampling: int = 0  # of these, steps that draw a token: known to the runner, not yet to us
    blocks: list[int] = field(default_factory=list)  # block table; append only while running, but for copy-on-write
    prefix: list[Node] = field(default_factory=list)  # chain node of each published or matched full block
    row: int = -1
    hit: int = 0  # prompt tokens reused from the prefix cache at first admission
    preemptions: int = 0
    finished: bool = False
    siblings: list[Sequence] = field(default_factory=list)  # other choices, until they are forked from this one

    @property
    def order(self) -> tuple[int, int, int]:
        """The one sort key of all queues: lower runs earlier and is preempted later."""
        return (self.request.priority, self.arrival, self.choice)

    @property
    def prompt_tokens(self) -> int:
        return len(self.request.prompt)

    @property
    def generated(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    def usage(self) -> Usage:
        return Usage(self.prompt_tokens, self.generated, self.hit)
