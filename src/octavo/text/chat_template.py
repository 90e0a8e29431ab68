"""Messages to the prompt text that a model was trained on. Owns the contract between request and template; running
a template is `template_program.py`, the messages' form `messages.py` and `template_form.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from octavo.errors import InvalidRequest
from octavo.text.messages import shape_messages
from octavo.text.template_form import form_of
from octavo.text.template_program import TemplateProgram

# For models without a template: ChatML where the vocabulary has its tokens, else plain paragraphs.
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PLAIN = (
    "{{ bos_token }}{% for message in messages %}{{ message.role }}: {{ message.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
RESERVED = frozenset(
    {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "range"}
    | {"raise_exception", "strftime_now"}
)


class ChatTemplate:
    """One model's chat template, compiled. Threads may share it.

    `source` is the Jinja text, or several by name: "tool_use" then serves requests with tools, "default" the
    others. A template that does not compile does not stop a model from loading: every `render` says so. The
    rendered text holds its own special tokens; encode it with `add_special=False`.
    """

    def __init__(self, source: str | Mapping[str, str], *, bos_token: str = "", eos_token: str = "") -> None:
        sources = {"default": source} if isinstance(source, str) else dict(source)
        default = sources.get("default") or next(iter(sources.values()))
        special = {"bos_token": bos_token, "eos_token": eos_token}
        self._default = TemplateProgram(default, special)
        self._with_tools = TemplateProgram(sources.get("tool_use", default), special)
        self._forms = {program: form_of(program) for program in (self._default, self._with_tools)}

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,  # so that no variable of a client collides with a name here
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt text. `variables` reach the template under their own names (chat_template_kwargs).

        Raises InvalidRequest: param "messages", with the template's own words, when it refuses them or fails;
        param "chat_template_kwargs" for a variable that would replace one of the contract's.
        """
        if taken := RESERVED & variables.keys():
            raise InvalidRequest(
                f"chat_template_kwargs may not set {', '.join(sorted(taken))}", param="chat_template_kwargs"
            )
        program = self._with_tools if tools else self._default
        given = {
            "messages": shape_messages(messages, self._forms[program]),
            "tools": tools or None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        return program.run({**given, **variables})
