"""What came of a step: drawn tokens are appended, blocks whose contents exist now are published, and what has
ended ends. The only place where tokens become outputs.
"""

from __future__ import annotations

from octavo.core.plan import StepPlan, StepResult
from octavo.core.roster import Roster
from octavo.core.sequence import Sequence
from octavo.types import FinishReason, Output, TokenLogprob


def commit_step(roster: Roster, plan: StepPlan, result: StepResult) -> list[Output]:
    """Fold a finished step back. Steps are committed in the order in which they were planned."""
    outputs: list[Output] = []
    logprobs = result.logprobs or [None] * len(result.tokens)
    size = roster.pool.block_size
    drawn = 0
    for row in plan.rows:
        sequence = _landed(roster, row.row)
        if row.sample:
            _accept(roster, sequence, result.tokens[drawn], logprobs[drawn], outputs)
            drawn += 1
        end = row.start + row.count
        if end // size > len(sequence.prefix):
            _publish(roster, sequence, end)
        for fork_row in row.forks:
            fork = _landed(roster, fork_row)
            fork.prefix = list(sequence.prefix)
            _accept(roster, fork, result.tokens[drawn], logprobs[drawn], outputs)
            drawn += 1
            if fork.finished:
                roster.settle(fork)
        if sequence.finished:
            roster.settle(sequence)
    roster.counters.steps += 1
    return outputs


def _landed(roster: Roster, row: int) -> Sequence:
    """The sequence in `row`, which has one step less in flight."""
    sequence = roster.rows[row]
    assert sequence is not None, f"row {row} was given away while a step was in flight"
    sequence.in_flight -= 1
    return sequence


def _accept(
    roster: Roster, sequence: Sequence, token: int, logprob: TokenLogprob | None, outputs: list[Output]
) -> None:
    """Take one drawn token. A sequence that has ended meanwhile drops it."""
    sequence.sampling -= 1
    if sequence.finished:
        return
    sequence.tokens.append(token)
    roster.counters.generated_tokens += 1
    if token in sequence.stop_ids:
        output = Output(sequence.request.id, sequence.choice, [], finish=FinishReason.STOP, stop_token=token)
    else:
        output = Output(sequence.request.id, sequence.choice, [token])
        if logprob is not None:
            output.logprobs = [logprob]
        if sequence.generated >= sequence.max_new:
            output.finish = FinishReason.LENGTH
    outputs.append(output)
    if output.finish is not None or sequence.generated == len(sequence.request.generated) + 1:
        output.usage = sequence.usage()
    if output.finish is not None:
        roster.counters.finished += 1
        roster.end(sequence)


def _publish(roster: Roster, sequence: Sequence, computed: int) -> None:
    """Make the blocks findable whose contents exist now: those full within the committed `computed`.

    A sequence that was aborted may have computed a token that it dropped; that token is in no block's key.
    """
    pool = roster.pool
    if not pool.caching:
        return
    size = pool.block_size
    prefix = sequence.prefix
    for index in range(len(prefix), min(computed, len(sequence.tokens)) // size):
        parent = prefix[-1] if prefix else sequence.request.salt
        tokens = tuple(sequence.tokens[index * size : (index + 1) * size])
        prefix.append(pool.publish(sequence.blocks[index], parent, tokens))
