"""octavo run with a tiny model: OpenAI's result format, errors as lines, and going on after being killed."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from octavo_process import Octavo
from openai.types import Completion
from openai.types.chat import ChatCompletion
from typer.testing import CliRunner, Result

from octavo.cli.main import app

TinyModel = Callable[[str], Path]


def line(custom_id: str, *, url: str = "/v1/chat/completions", **body: Any) -> str:
    prompt = {"messages": [{"role": "user", "content": custom_id}]} if "chat" in url else {"prompt": custom_id}
    body = {"model": "tiny", "temperature": 0, "max_tokens": 5, "ignore_eos": True, **prompt, **body}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body})


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{each}\n" for each in lines))
    return path


def arguments(model: Path, requests: Path, results: Path) -> list[str]:
    options = ["--model", str(model), "--served-name", "tiny", "--kv-memory", "4MiB", "--max-running", "4", "--offline"]
    return ["run", str(requests), "-o", str(results), *options]


def run(model: Path, requests: Path, results: Path) -> Result:
    return CliRunner().invoke(app, arguments(model, requests, results))


def results_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(each) for each in path.read_text().splitlines()]


def test_answers_have_the_form_of_openais_batches(tiny_model: TinyModel, tmp_path: Path) -> None:
    requests = write(tmp_path / "in", line("a"), line("b", url="/v1/completions"))
    result = run(tiny_model("llama"), requests, tmp_path / "out")
    assert result.exit_code == 0, result.output
    found = {each["custom_id"]: each for each in results_in(tmp_path / "out")}
    assert found.keys() == {"a", "b"}
    for each in found.values():
        assert each.keys() == {"id", "custom_id", "response", "error"}
        assert each["error"] is None
        assert each["response"]["status_code"] == 200
        assert each["response"]["request_id"]
    chat = ChatCompletion.model_validate(found["a"]["response"]["body"], strict=True)
    completion = Completion.model_validate(found["b"]["response"]["body"], strict=True)
    assert chat.usage.completion_tokens == completion.usage.completion_tokens == 5


def test_failures_are_lines_and_a_second_run_has_nothing_to_do(tiny_model: TinyModel, tmp_path: Path) -> None:
    lines = [line("a"), "nonsense", line("a"), line("hot", temperature=9), line("other", model="gpt"), line("b")]
    requests = write(tmp_path / "in", *lines)
    result = run(tiny_model("llama"), requests, tmp_path / "out")
    assert result.exit_code == 1
    assert "4 failed" in result.stderr
    found = results_in(tmp_path / "out")
    statuses = {each["custom_id"]: each["response"]["status_code"] for each in found if each["response"]}
    assert statuses == {"a": 200, "b": 200, "hot": 400, "other": 404}
    assert sorted(each["error"]["message"][:7] for each in found if each["error"]) == ["line 2:", "line 3:"]
    hot = next(each for each in found if each["custom_id"] == "hot")
    assert hot["response"]["body"]["error"]["param"] == "temperature"

    before = (tmp_path / "out").read_bytes()
    again = run(tmp_path / "no-model-is-needed", requests, tmp_path / "out")
    assert again.exit_code == 0
    assert "nothing to do" in again.stderr
    assert (tmp_path / "out").read_bytes() == before


def test_a_killed_run_goes_on_and_gives_the_same_answers(tiny_model: TinyModel, tmp_path: Path, octavo: Octavo) -> None:
    model, names = tiny_model("llama"), [f"request {number}" for number in range(40)]
    requests = write(tmp_path / "in", *(line(name, max_tokens=60 + len(name)) for name in names))
    results = tmp_path / "out"
    process = octavo(*arguments(model, requests, results))
    deadline = time.monotonic() + 60
    while not (results.exists() and results.read_bytes().count(b"\n") >= 3):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    partly = results.read_bytes()
    assert 3 <= partly.count(b"\n") < len(names)
    results.write_bytes(partly[: partly.rindex(b"\n") - 20])  # as if the last line had been torn

    assert run(model, requests, results).exit_code == 0
    assert run(model, requests, tmp_path / "whole").exit_code == 0
    assert answers_in(results) == answers_in(tmp_path / "whole")
    assert sorted(each["custom_id"] for each in results_in(results)) == sorted(names)


def answers_in(path: Path) -> dict[str, str]:
    return {
        each["custom_id"]: each["response"]["body"]["choices"][0]["message"]["content"] for each in results_in(path)
    }


def test_a_full_queue_is_waited_for(tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.cli.batch_answers.WAIT_S", 0.01)
    requests = write(tmp_path / "in", *(line(f"request {number}") for number in range(20)))
    options = [*arguments(tiny_model("llama"), requests, tmp_path / "out"), "--queue", "1"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    assert [each["response"]["status_code"] for each in results_in(tmp_path / "out")] == [200] * 20


def test_the_input_is_never_the_output(tmp_path: Path) -> None:
    requests = write(tmp_path / "in", line("a"))
    before = requests.read_bytes()
    result = run(tmp_path / "any", requests, requests)
    assert result.exit_code == 2
    assert requests.read_bytes() == before


def test_an_absent_input_or_model_is_one_clear_line(tmp_path: Path) -> None:
    absent = run(tmp_path / "any", tmp_path / "absent", tmp_path / "out")
    assert absent.exit_code == 1
    assert "cannot be read" in absent.stderr
    requests = write(tmp_path / "in", line("a"))
    no_model = run(tmp_path / "any", requests, tmp_path / "out")
    assert no_model.exit_code == 1
    assert "no such file" in no_model.stderr
