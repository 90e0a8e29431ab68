"""One chat template as a program: compiled in the sandbox, run on messages, its failures turned into refusals.
What it expects of messages is `template_form.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jinja2

from octavo.errors import InvalidRequest
from octavo.text.template_sandbox import RangeBudget, TemplateSandbox

MAX_TEMPLATE_CHARS = 1 << 18  # the longest real ones have some 20,000; compiling takes seconds for each million


class TemplateProgram:
    """A compiled template. One that does not compile is kept, and every run says why it cannot be used.

    `constants` reach the template in every run.
    """

    def __init__(self, text: str, constants: Mapping[str, str]) -> None:
        self.text = text
        self._constants = dict(constants)
        self._compiled: jinja2.Template | None = None
        self._fault = ""
        if len(text) > MAX_TEMPLATE_CHARS:
            self._fault = f"The model's chat template has {len(text)} characters, the limit is {MAX_TEMPLATE_CHARS}"
            return
        try:
            self._compiled = TemplateSandbox().from_string(text)
        except jinja2.TemplateSyntaxError as error:
            self._fault = f"The model's chat template is broken (line {error.lineno}): {error.message}"
        except Exception as error:  # a template can also break what jinja2 makes of it, for example by its depth
            self._fault = f"The model's chat template does not compile: {type(error).__name__}: {error}"

    def run(self, variables: Mapping[str, Any]) -> str:
        """The rendered text. InvalidRequest (param "messages") with the template's words when it fails."""
        if self._compiled is None:
            raise InvalidRequest(self._fault, param="messages")
        try:
            return self._compiled.render({**variables, **self._constants, "range": RangeBudget()})
        except jinja2.TemplateError as error:
            raise InvalidRequest(f"The chat template refused the messages: {error}", param="messages") from error
        except Exception as error:  # a template is a program by others; whatever it raises is its refusal
            raise InvalidRequest(
                f"The chat template failed on the messages: {type(error).__name__}: {error}", param="messages"
            ) from error
