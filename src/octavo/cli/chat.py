"""`octavo chat`: a chat in the terminal with the model in this process. Owns reading lines and showing answers; what is
remembered is `conversation.py`'s. Where standard input is no terminal, each line is a message and only answers are
written.
"""

from __future__ import annotations

import select
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.console import diagnostics, print_error
from octavo.cli.options import configured
from octavo.config import EngineConfig
from octavo.errors import ContextLengthExceeded, InvalidRequest
from octavo.types import SamplingParams

if TYPE_CHECKING:
    from octavo.cli.conversation import Conversation

HELP = """\
/system TEXT   tell the model who it is (without TEXT: show what it was told)
/reset         forget the chat, keep the system message
/help          these lines
/exit          leave; so do Ctrl-D, and Ctrl-C at the prompt
Ctrl-C stops an answer. A pasted text of several lines is one message."""
PASTE_GAP_S = 0.02  # a terminal hands a paste over faster than anybody types


@configured(model="argument")
def chat(
    engine: EngineConfig,
    system: Annotated[str, typer.Option(help="The system message.")] = "",
    temperature: Annotated[float, typer.Option(help="0 gives the likeliest answer, more gives variety.")] = 0.7,
    max_tokens: Annotated[int | None, typer.Option(help="Longest answer. Default: until the context is full.")] = None,
    seed: Annotated[int | None, typer.Option(help="Makes answers repeatable.")] = None,
) -> None:
    """Chat with a model in the terminal."""
    import msgspec

    from octavo.cli.conversation import Conversation
    from octavo.llm import LLM

    try:
        params = SamplingParams(temperature=temperature, max_tokens=max_tokens, seed=seed)
    except InvalidRequest as error:
        raise typer.BadParameter(error.message) from None
    options = msgspec.to_builtins(engine)
    with LLM(options.pop("model"), **options) as llm:
        conversation = Conversation(llm, params, system)
        if sys.stdin.isatty():
            _talk_in_terminal(conversation, engine.model)
        else:
            for line in sys.stdin:
                if line.strip() and not _respond(conversation, line.rstrip("\n")):
                    break


def _talk_in_terminal(conversation: Conversation, model: str) -> None:
    """Prompt until /exit or the end of input. Ctrl-C at the prompt leaves as KeyboardInterrupt."""
    _edit_lines()
    diagnostics().print(f"[bold]{model}[/], {conversation.context_length} tokens of context. /help shows commands.")
    while True:
        try:
            text = _read_message()
        except EOFError:
            print()
            return
        if text.strip() and not _respond(conversation, text):
            return


def _respond(conversation: Conversation, text: str) -> bool:
    """Do what one message asks. False when it asks to leave."""
    command, _, rest = text.strip().partition(" ")
    match command:
        case "/exit" | "/quit":
            return False
        case "/help":
            diagnostics().print(HELP, markup=False)
        case "/reset":
            conversation.reset()
        case "/system" if rest.strip():
            conversation.system = rest.strip()
        case "/system":
            diagnostics().print(conversation.system or "(no system message)", markup=False)
        case _ if command.startswith("/") and command[1:].isalpha():
            print_error(f"no command {command}; /help lists them")
        case _:
            _answer(conversation, text)
    return True


def _answer(conversation: Conversation, text: str) -> None:
    """Show the answer as it comes. A full context is explained, and the message is not remembered."""
    try:
        with closing(conversation.ask(text)) as pieces:
            for piece in pieces:
                sys.stdout.write(piece)
                sys.stdout.flush()
    except KeyboardInterrupt:
        diagnostics().print("\n[dim](stopped)[/]", end="")
    except ContextLengthExceeded:
        print_error(f"this chat fills the context of {conversation.context_length} tokens: /reset begins a new one")
        return
    except InvalidRequest as error:
        print_error(error.message)
        return
    sys.stdout.write("\n")
    sys.stdout.flush()
    if conversation.full:
        print_error(f"the context of {conversation.context_length} tokens is full: /reset begins a new chat")


def _edit_lines() -> None:
    """Arrow keys and history at the prompt, where Python has readline."""
    try:
        import readline
    except ImportError:  # Windows
        return
    readline.parse_and_bind("set enable-bracketed-paste on")


def _read_message() -> str:
    """One message. Lines that are there already when the first has been read belong to the same paste."""
    lines = [input("> ")]
    while _more_is_there():
        lines.append(input())
    return "\n".join(lines)


def _more_is_there() -> bool:
    try:
        return bool(select.select([sys.stdin], [], [], PASTE_GAP_S)[0])
    except (OSError, ValueError):  # select knows no terminals on Windows
        return False
