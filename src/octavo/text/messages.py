"""Chat messages as clients send them, made into what a template expects. Owns roles, content parts and tool-call
arguments; rendering is `chat_template.py`.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.errors import InvalidRequest

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
PART_SEPARATOR = "\n"


class ContentForm(enum.Enum):
    """What a template takes as a message's content."""

    TEXT = "text"  # a string only
    PARTS = "parts"  # a list of typed parts only
    EITHER = "either"


@dataclass(frozen=True, slots=True)
class MessageForm:
    """What one template expects of messages."""

    content: ContentForm = ContentForm.TEXT
    developer: bool = False  # it knows the role; otherwise a developer message is a system message
    argument_objects: bool = True  # tool-call arguments as objects rather than the JSON text clients send


def shape_messages(messages: Sequence[Mapping[str, Any]], form: MessageForm) -> list[dict[str, Any]]:
    """Copies of the messages in the form asked for.

    Content parts become one text, joined by newlines; absent content becomes "". `reasoning` is also given as
    `reasoning_content`, the name that templates read. Raises InvalidRequest (param "messages"), naming the
    message, for an empty list, an unknown role, or content that is not text.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise InvalidRequest("messages must be a list with at least one message", param="messages")
    return [_shape(message, f"messages[{index}]", form) for index, message in enumerate(messages)]


def _shape(message: Mapping[str, Any], where: str, form: MessageForm) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InvalidRequest(f"{where} must be an object with role and content", param="messages")
    shaped = dict(message)
    role = shaped.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise InvalidRequest(
            f"{where}.role must be one of {', '.join(sorted(ROLES))}, got {role!r:.60}", param="messages"
        )
    if role == "developer" and not form.developer:
        shaped["role"] = "system"
    shaped["content"] = _content(shaped.get("content"), f"{where}.content", form.content)
    if shaped.get("reasoning") and not shaped.get("reasoning_content"):
        shaped["reasoning_content"] = shaped["reasoning"]
    if shaped.get("tool_calls"):
        shaped["tool_calls"] = _tool_calls(shaped["tool_calls"], f"{where}.tool_calls", form.argument_objects)
    return shaped


def _content(content: Any, where: str, form: ContentForm) -> str | list[dict[str, Any]]:
    if content is None:
        content = ""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if form is ContentForm.PARTS else content
    if not isinstance(content, Sequence):
        raise InvalidRequest(f"{where} must be a string or a list of parts", param="messages")
    texts = [_part_text(part, f"{where}[{index}]") for index, part in enumerate(content)]
    if form is ContentForm.TEXT:
        return PART_SEPARATOR.join(texts)
    return [{"type": "text", "text": text} for text in texts]


def _part_text(part: Any, where: str) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind != "text":
        raise InvalidRequest(f"{where} must be a part of type 'text', got {kind!r:.60}", param="messages")
    text = part.get("text")
    if not isinstance(text, str):
        raise InvalidRequest(f"{where}.text must be a string", param="messages")
    return text


def _tool_calls(calls: Any, where: str, objects: bool) -> list[dict[str, Any]]:
    if not isinstance(calls, Sequence) or not all(
        isinstance(call, Mapping) and isinstance(call.get("function"), Mapping) for call in calls
    ):
        raise InvalidRequest(f"{where} must be a list of objects with a function", param="messages")
    return [
        {**call, "function": {**call["function"], "arguments": _arguments(call["function"], objects)}} for call in calls
    ]


def _arguments(function: Mapping[str, Any], objects: bool) -> Any:
    """Arguments in the wanted form. Text that is no JSON stays: a model wrote it and may see it again."""
    arguments = function.get("arguments")
    if not objects:
        return arguments if isinstance(arguments, str) else _json_text(arguments)
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return arguments


def _json_text(arguments: Any) -> str:
    try:
        return json.dumps(arguments, ensure_ascii=False)
    except RecursionError:
        raise InvalidRequest("the arguments of a tool call are nested too deeply", param="messages") from None
