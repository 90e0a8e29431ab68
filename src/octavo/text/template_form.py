"""Finding out what a chat template expects of messages, by running it on small ones. Owns these probes; the forms
themselves are `messages.py`.
"""

from __future__ import annotations

import re
from typing import Any

from octavo.errors import InvalidRequest
from octavo.text.messages import ContentForm, MessageForm
from octavo.text.template_program import TemplateProgram

PROBE = "octavo probe"
ARGUMENTS = {"probe": 1}
ARGUMENTS_TEXT = '{"probe": 1}'
DEVELOPER = re.compile(r"""(["'])developer\1""")


def form_of(program: TemplateProgram) -> MessageForm:
    """The form in which the template understands messages: four small renderings.

    Content: parts are passed on only where one text part renders exactly like the string. Arguments: objects,
    unless only JSON text comes out as JSON (templates that join strings).
    """
    parts = [{"type": "text", "text": PROBE}]
    from_text = _attempt(program, [{"role": "user", "content": PROBE}])
    from_parts = _attempt(program, [{"role": "user", "content": parts}])
    if PROBE in from_parts and from_parts == from_text:
        content = ContentForm.EITHER
    elif PROBE in from_parts and PROBE not in from_text:
        content = ContentForm.PARTS
    else:
        content = ContentForm.TEXT
    user = {"role": "user", "content": parts if content is ContentForm.PARTS else PROBE}
    as_object = _attempt(program, [user, _calling(ARGUMENTS)])
    as_text = _attempt(program, [user, _calling(ARGUMENTS_TEXT)])
    only_text = '"probe"' in as_text and '"probe"' not in as_object
    return MessageForm(content=content, developer=bool(DEVELOPER.search(program.text)), argument_objects=not only_text)


def _calling(arguments: object) -> dict[str, Any]:
    call = {"id": "probe0000", "type": "function", "function": {"name": "find", "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _attempt(program: TemplateProgram, messages: list[dict[str, Any]]) -> str:
    try:
        return program.run({"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True})
    except InvalidRequest:
        return ""
