"""Reads an event stream strictly, frame by frame, and sorts its chunks by choice."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import httpx


def post(http: httpx.Client, path: str, **body: Any) -> list[dict[str, Any]]:
    """The chunks of a streamed answer, which must be well-formed and end with [DONE]."""
    answer = http.post(path, json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return frames(answer.text)


def frames(text: str) -> list[dict[str, Any]]:
    """Every frame is one `data: {json}` line; the last one is [DONE]. Comments are left out."""
    assert text.endswith("\n\n")
    lines = [line for line in text[:-2].split("\n\n") if not line.startswith(":")]
    assert all(line.startswith("data: ") and "\n" not in line for line in lines)
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def by_choice(chunks: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """The chunks' choices by index, in order. Each chunk but the one that tells the usage has exactly one."""
    choices: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for chunk in chunks:
        for choice in chunk["choices"]:
            choices[choice["index"]].append(choice)
    return choices


def chat_text(choices: list[dict[str, Any]]) -> str:
    return "".join(choice["delta"].get("content", "") for choice in choices)


def completion_text(choices: list[dict[str, Any]]) -> str:
    return "".join(choice["text"] for choice in choices)
