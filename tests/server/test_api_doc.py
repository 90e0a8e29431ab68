"""docs/api.md names tests that exist, and no request field is missing from its table."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from octavo.server.openai import ChatRequest, CompletionRequest

HERE = Path(__file__).parent
DOC = (HERE.parents[1] / "docs" / "api.md").read_text(encoding="utf-8")


def test_every_test_named_exists() -> None:
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", DOC)
    assert len(named) > 30
    for file, test in named:
        assert re.search(rf"def {test}\(", (HERE / file).read_text(encoding="utf-8")), f"{file} has no {test}"


def test_every_field_is_described() -> None:
    fields = {field.encode_name for kind in (ChatRequest, CompletionRequest) for field in msgspec.structs.fields(kind)}
    described = DOC[DOC.index("## Requests") : DOC.index("## Errors")]
    assert {name for name in fields if f"`{name}`" not in described} == set()
