"""The line protocol of a contender, from its side: one JSON job on standard input, one JSON result on standard output,
until the input ends. Owns the two streams; what a job asks for is the adapter's.

A job holds `id` and the fields that `workloads.py` gives it. The result repeats `id` and has `figures`, `settings` and
`versions`, or else `error`. Whatever the peer's libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

Job = dict[str, Any]
Result = dict[str, Any]


class CannotRun(Exception):
    """The job asks for what this contender does not have. The message says what."""


def serve_jobs(run: Callable[[Job], Result]) -> None:
    """Answer every job with what `run` returns, or with the exception that it raises."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a library that prints, from C too, must not garble the answers
    for line in sys.stdin:
        job = json.loads(line)
        try:
            result = run(job)
        except CannotRun as error:
            result = {"error": str(error)}
        except Exception as error:  # whatever a peer's library raises: it is the answer to this job
            result = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps({**result, "id": job["id"]}) + "\n")
        answers.flush()
