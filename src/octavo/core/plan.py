"""One step's decision as plain numbers, and the seam to whatever executes it.

A StepPlan can be printed, packed with msgpack, sent to other ranks, replayed from a log or run by a simulator.
This file owns the data and the Runner protocol; it decides nothing.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from octavo.types import SamplingParams, TokenLogprob


class Admit(msgspec.Struct, array_like=True):
    """A sequence takes a row: everything the runner must know about it until `retire` names the row.

    `tokens` are all tokens known now (prompt + generated); the first `computed` of them are in the cache
    already, in `blocks` (prefix hit, or a fork's shared blocks). `prompt_tokens` says where output starts.
    Noise for the token at position p is drawn from (seed, choice, p).
    """

    row: int
    tokens: list[int]
    prompt_tokens: int
    computed: int
    blocks: list[int]
    params: SamplingParams
    seed: int
    choice: int


class Row(msgspec.Struct, array_like=True):
    """Compute tokens start .. start+count-1 of the sequence in `row`.

    `new_blocks` are written to the row's block table from table index `table_start` on: appended, except after
    a copy-on-write, when the first of them replaces the shared last block. When `sample` is set the row's last
    token is the last one known, and one token is drawn for the row and then one for each row in `forks`
    (siblings admitted in this plan that share the prompt) from the same logits. A token not known when the
    plan was made (sampled by a step in flight) is read by the runner from its own row state.
    """

    row: int
    start: int
    count: int
    sample: bool
    table_start: int
    new_blocks: list[int]
    forks: list[int]


class StepPlan(msgspec.Struct, array_like=True):
    """What one step does, in this order: retire rows, admit rows, copy blocks, compute and sample `rows`.

    `copies` (src block, dst block) happen in order before any write of the step. `tokens` is the sum of counts.
    """

    step: int
    retire: list[int]
    admit: list[Admit]
    copies: list[tuple[int, int]]
    rows: list[Row]
    tokens: int


class StepResult(msgspec.Struct, array_like=True):
    """Sampled tokens in plan order: for each row with `sample`, the row's own, then one per fork.

    `logprobs` aligns with `tokens`, with None for sequences that did not ask; None when nobody asked. `compute_s`: the
    seconds that the model's forward pass took, if the runner knows.
    """

    tokens: list[int]
    logprobs: list[TokenLogprob | None] | None = None
    compute_s: float = 0.0


class Pending(Protocol):
    """A launched step."""

    def wait(self) -> StepResult: ...


class Runner(Protocol):
    """Executes plans in the order given. `depth` is how many may be in flight: 1 on CPU, 2 on GPU."""

    @property
    def depth(self) -> int: ...

    def launch(self, plan: StepPlan) -> Pending: ...
