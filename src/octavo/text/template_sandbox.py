"""The Jinja environment in which chat templates run, with what Hugging Face templates may use. Owns the sandbox and
its limits; what a template is given is `chat_template.py`.

Source: the chat template contract of transformers (docs, "Writing a chat template").
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_RANGE_TOTAL = 1_000_000  # numbers that all `range` calls of one rendering may yield together
MAX_REPEAT = 100_000  # length of a string or list made by `*`


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """Templates come with checkpoints, so from strangers: no attribute tricks, no mutation, and bounds on numeric loops
    and repetition. It is no defence against one that is written to waste time or memory: Jinja has no meter."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, LoopControlExtension])
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _raise
        self.globals["strftime_now"] = _strftime_now

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Refuse products that would fill the memory."""
        if operator == "**":
            raise SecurityError("powers are not allowed")
        for repeated, count in ((left, right), (right, left)):
            sized = isinstance(repeated, (str, list, tuple)) and isinstance(count, int)
            if sized and len(repeated) * count > MAX_REPEAT:
                raise SecurityError(f"repetition beyond {MAX_REPEAT} elements")
        return super().call_binop(context, operator, left, right)


class RangeBudget:
    """`range` for one rendering. Jinja's sandbox bounds one call; this bounds all of them, nested ones too."""

    def __init__(self) -> None:
        self._left = MAX_RANGE_TOTAL

    def __call__(self, *args: int) -> range:
        numbers = range(*args)
        self._left -= len(numbers)
        if self._left < 0:
            raise SecurityError(f"its loops run over more than {MAX_RANGE_TOTAL} numbers")
        return numbers


class GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's words for training; serving renders what is inside."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models saw it in training: Unicode as it is, no HTML escapes (unlike jinja2's own filter)."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
