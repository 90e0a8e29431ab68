"""`octavo bench compare` without its terminal: from a model and the peers found to the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from octavo.bench.compare.files import ModelFiles, read_size
from octavo.bench.compare.find import Peer, own_contender
from octavo.bench.compare.report import Comparison, row_report, this_machine
from octavo.bench.compare.rounds import Conditions, Rounds, quantizer
from octavo.bench.compare.workloads import LLAMA_CPP, ROWS, SWEEP, Row
from octavo.bench.termination import sigterm_as_ctrl_c
from octavo.errors import BenchError


def choose_rows(names: Sequence[str], *, sweep: bool) -> list[Row]:
    """The rows of these names, or all of the table; `sweep` adds those over the number of users. BenchError for a name
    that is none."""
    known = {row.name: row for row in (*ROWS, *SWEEP)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise BenchError(f"there is no row {unknown[0]!r}; rows are {', '.join(known)}")
    chosen = [known[name] for name in dict.fromkeys(names)] or ([] if sweep else list(ROWS))
    return [*chosen, *(row for row in SWEEP if sweep and row not in chosen)]


def compare(
    model: Path,
    name: str,
    rows: Sequence[Row],
    peers: Sequence[Peer],
    conditions: Conditions,
    *,
    scratch: Path,
    command: str,
    say: Callable[[str], None],
) -> Comparison:
    """Run `rows` with Octavo and `peers`. `scratch` keeps files in other formats; `say` hears of every run.

    CheckpointError or UnsupportedModel when Octavo cannot read the model; nothing that a peer does raises.
    """
    llama_cpp = next((peer for peer in peers if peer.name == LLAMA_CPP), Peer(LLAMA_CPP, missing="not wanted"))
    files = ModelFiles(model, scratch, quantizer(llama_cpp, conditions))
    rounds = Rounds([own_contender(), *peers], files, read_size(files.path), conditions, say)
    with sigterm_as_ctrl_c():
        reports = [row_report(row, rounds.run(row)) for row in rows]
    return Comparison(
        model=name,
        threads=conditions.threads,
        rounds=conditions.rounds,
        seed=conditions.seed,
        quick=conditions.quick,
        command=command,
        machine=this_machine(),
        rows=reports,
    )
