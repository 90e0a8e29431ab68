"""octavo chat: commands, history, stopping an answer, a full context; piped, and on a real pseudo-terminal."""

import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from octavo import LLM, SamplingParams
from octavo.cli.conversation import Conversation
from octavo.cli.main import app
from octavo.errors import ContextLengthExceeded

TinyModel = Callable[[str], Path]
GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
SMALL = ["--kv-memory", "1MiB", "--max-running", "2", "--offline"]


@pytest.fixture(scope="module")
def llm(tiny_model: TinyModel) -> Iterator[LLM]:
    with LLM(str(tiny_model("llama")), kv_memory="1MiB", max_running=2, progress=False) as made:
        yield made


def chat(model: Path, *lines: str, options: tuple[str, ...] = ()) -> Result:
    arguments = ["chat", str(model), *SMALL, "--temperature", "0", *options]
    return CliRunner().invoke(app, arguments, input="".join(f"{each}\n" for each in lines))


def test_the_history_is_what_the_model_is_asked(llm: LLM) -> None:
    conversation = Conversation(llm, GREEDY, "Be brief.")
    first = "".join(conversation.ask("one"))
    second = "".join(conversation.ask("two"))
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "two"},
    ]
    assert second == llm.chat(messages, GREEDY)[0].text


def test_reset_forgets_all_but_the_system_message(llm: LLM) -> None:
    conversation = Conversation(llm, GREEDY, "Be brief.")
    first = "".join(conversation.ask("one"))
    "".join(conversation.ask("two"))
    conversation.reset()
    assert "".join(conversation.ask("one")) == first


def test_a_stopped_answer_is_remembered_as_far_as_it_came(llm: LLM) -> None:
    conversation = Conversation(llm, GREEDY)
    pieces = conversation.ask("one")
    shown = next(pieces)
    pieces.close()
    messages = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": shown},
        {"role": "user", "content": "two"},
    ]
    assert "".join(conversation.ask("two")) == llm.chat(messages, GREEDY)[0].text
    assert llm.stats().running == 0


def test_a_refused_message_is_forgotten_and_a_full_context_noticed(llm: LLM) -> None:
    conversation = Conversation(llm, SamplingParams(temperature=0, ignore_eos=True))
    with pytest.raises(ContextLengthExceeded):
        "".join(conversation.ask("x" * 400))
    assert not conversation.full
    "".join(conversation.ask("x"))
    assert conversation.full


def test_lines_are_messages_where_there_is_no_terminal(tiny_model: TinyModel, llm: LLM) -> None:
    result = chat(tiny_model("llama"), "one", "", "two", options=("--max-tokens", "6"))
    assert result.exit_code == 0, result.output
    params = SamplingParams(temperature=0, max_tokens=6)
    conversation = Conversation(llm, params)
    assert result.stdout == "".join("".join(conversation.ask(text)) + "\n" for text in ("one", "two"))


def test_commands(tiny_model: TinyModel) -> None:
    lines = ("/help", "/system", "/system Be [bold]", "/system", "/nonsense", "/exit", "never read")
    result = chat(tiny_model("llama"), *lines)
    assert result.exit_code == 0
    assert result.stdout == ""
    for words in ("/reset", "(no system message)", "Be [bold]", "no command /nonsense"):
        assert words in result.stderr


def test_a_full_context_is_explained_and_the_chat_goes_on(tiny_model: TinyModel) -> None:
    result = chat(tiny_model("llama"), "x" * 400, "/reset", "hi", options=("--max-tokens", "4"))
    assert result.exit_code == 0
    assert "/reset begins a new one" in result.stderr
    assert result.stdout.count("\n") == 1


def test_ctrl_c_stops_the_answer_only(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Conversation, text: str) -> Iterator[str]:
        yield text.upper()
        raise KeyboardInterrupt

    monkeypatch.setattr(Conversation, "ask", interrupted)
    result = chat(tiny_model("llama"), "one", "two")
    assert result.exit_code == 0
    assert result.stdout == "ONE\nTWO\n"
    assert result.stderr.count("(stopped)") == 2


def test_a_bad_sampling_value_is_a_usage_error(tiny_model: TinyModel) -> None:
    result = chat(tiny_model("llama"), options=("--max-tokens", "0"))
    assert result.exit_code == 2
    assert "max_tokens" in result.output


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        command = [sys.executable, "-m", "octavo", *arguments]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, preexec_fn=take_terminal
        )
        os.close(slave)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def wait_for(self, pattern: str) -> None:
        """Read until `pattern` matches what has come since the last match."""
        deadline = time.monotonic() + 60
        while not (match := re.search(pattern, self.seen)):
            assert time.monotonic() < deadline, self.seen
            try:
                self.seen += os.read(self.master, 4096).decode(errors="replace")
            except OSError:  # the other side has closed
                pytest.fail(f"ended before {pattern!r}: {self.seen}")
        self.seen = self.seen[match.end() :]

    def end(self) -> int:
        code = self.process.wait(30)
        os.close(self.master)
        return code


def take_terminal() -> None:
    """Make standard input the controlling terminal, so that Ctrl-C reaches the command."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_chat_on_a_terminal_with_a_paste_and_ctrl_c_at_the_prompt(tiny_model: TinyModel) -> None:
    terminal = Terminal("chat", str(tiny_model("llama")), *SMALL, "--max-tokens", "3", "--temperature", "0")
    terminal.wait_for("/help shows commands")
    terminal.wait_for("> ")
    terminal.type("/system one\nof /exit several lines\n")  # a paste: one message, so /exit is not a command
    terminal.wait_for("several lines")
    terminal.wait_for("> ")
    terminal.type("/system\r")
    terminal.wait_for(r"one\s+of /exit several lines")
    terminal.wait_for("> ")
    terminal.type("hello\r")
    terminal.wait_for(r"hello\s*\n")
    terminal.wait_for("> ")  # of the next prompt: before it, Ctrl-C would only stop the answer
    terminal.type("\x03")
    assert terminal.end() == 130
    assert "Traceback" not in terminal.seen
