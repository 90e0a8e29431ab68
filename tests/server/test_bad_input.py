"""Bad input as a table: what is sent, the status, and the field that the OpenAI error body names. After all of it the
server answers as before.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from typing import Any

import httpx
import pytest
from sim_server import MODEL, SimServer, lone_text, sim_server

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "hi"}]


def chat(**fields: Any) -> tuple[str, bytes]:
    return CHAT, json.dumps({"model": MODEL, "messages": HI, "max_tokens": 4, **fields}).encode()


def text(**fields: Any) -> tuple[str, bytes]:
    return TEXT, json.dumps({"model": MODEL, "prompt": "hi", "max_tokens": 4, **fields}).encode()


def raw(body: bytes) -> tuple[str, bytes]:
    return CHAT, body


PART = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}

# name: (request, status, param, code)
TABLE: dict[str, tuple[tuple[str, bytes], int, str | None, str | None]] = {
    # not JSON, or not an object
    "malformed": (raw(b'{"model": '), 400, None, None),
    "empty": (raw(b""), 400, None, None),
    "a list": (raw(b"[]"), 400, None, None),
    "null": (raw(b"null"), 400, None, None),
    "NaN": (raw(b'{"model": "m", "messages": [], "temperature": NaN}'), 400, None, None),
    "invalid UTF-8": (raw(b'{"model": "\xff"}'), 400, None, None),
    "half a surrogate pair": (
        raw(b'{"model": "' + MODEL.encode() + b'", "messages": [{"role": "user", "content": "\\ud800"}]}'),
        400,
        None,
        None,
    ),
    "deep in a message": (raw(b'{"model": "m", "messages": [{"content": ' + b"[" * 100_000), 400, None, None),
    "deep in an unknown field": (raw(b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"), 400, None, None),
    "deep in an unsupported field": (raw(b'{"tools": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"), 400, None, None),
    # types and missing fields
    "no messages": (raw(b'{"model": "' + MODEL.encode() + b'"}'), 400, "messages", None),
    "no model": (raw(b'{"messages": [{"role": "user", "content": "hi"}]}'), 400, "model", None),
    "messages a string": (chat(messages="hi"), 400, "messages", None),
    "message a string": (chat(messages=["hi"]), 400, "messages[0]", None),
    "max_tokens a string": (chat(max_tokens="4"), 400, "max_tokens", None),
    "max_tokens a fraction": (chat(max_tokens=1.5), 400, "max_tokens", None),
    "n a boolean": (chat(n=True), 400, "n", None),
    "stream a string": (chat(stream="yes"), 400, "stream", None),
    "prompt a number": (text(prompt=3), 400, "prompt", None),
    # models
    "unknown model": (chat(model="another"), 404, "model", "model_not_found"),
    "unknown model, completions": (text(model="another"), 404, "model", "model_not_found"),
    # messages
    "no message": (chat(messages=[]), 400, "messages", None),
    "unknown role": (chat(messages=[{"role": "wizard", "content": "hi"}]), 400, "messages", None),
    "no role": (chat(messages=[{"content": "hi"}]), 400, "messages", None),
    "an image": (chat(messages=[PART]), 400, "messages", None),
    "content a number": (chat(messages=[{"role": "user", "content": 3}]), 400, "messages", None),
    "messages as a variable": (chat(chat_template_kwargs={"messages": []}), 400, "chat_template_kwargs", None),
    "self as a variable": (chat(chat_template_kwargs={"self": 1}), 400, "chat_template_kwargs", None),
    "range as a variable": (chat(chat_template_kwargs={"range": 1}), 400, "chat_template_kwargs", None),
    "a template that raises": (chat(chat_template_kwargs={"refuse": "roles must alternate"}), 400, "messages", None),
    "a template without end": (chat(chat_template_kwargs={"endless": True}), 400, "messages", None),
    "continue nothing": (
        chat(messages=[{"role": "assistant", "content": ""}], continue_final_message=True),
        400,
        "continue_final_message",
        None,
    ),
    "continue and begin": (
        chat(continue_final_message=True, add_generation_prompt=True),
        400,
        "continue_final_message",
        None,
    ),
    # prompts
    "no prompt": (text(prompt=[]), 400, "prompt", None),
    "prompt of no tokens": (text(prompt=""), 400, "prompt", None),
    "one prompt of no tokens": (text(prompt=["hi", ""]), 400, "prompt", None),
    "prompts of two kinds": (text(prompt=["hi", [5]]), 400, "prompt", None),
    "token beyond the vocabulary": (text(prompt=[5, 100_000]), 400, "prompt", None),
    "negative token": (text(prompt=[[-1]]), 400, "prompt", None),
    "token beyond 64 bits": (text(prompt=[2**70]), 400, "prompt", None),
    "more prompts than may wait": (text(prompt=["a"] * 65), 400, "prompt", None),
    # lengths
    "prompt too long": (
        chat(messages=[{"role": "user", "content": "x" * 1100}]),
        400,
        "messages",
        "context_length_exceeded",
    ),
    "long prompt of 500 kB": (text(prompt="word " * 100_000), 400, "prompt", "context_length_exceeded"),
    "max_tokens zero": (chat(max_tokens=0), 400, "max_tokens", None),
    "max_tokens zero without echo": (text(max_tokens=0), 400, "max_tokens", None),
    "max_tokens negative": (chat(max_tokens=-5), 400, "max_tokens", None),
    "max_tokens too large": (chat(max_tokens=5000), 400, "max_tokens", "context_length_exceeded"),
    "max_tokens beyond 64 bits": (chat(max_tokens=2**80), 400, "max_tokens", "context_length_exceeded"),
    # sampling
    "temperature negative": (chat(temperature=-0.1), 400, "temperature", None),
    "temperature too hot": (chat(temperature=2.1), 400, "temperature", None),
    "temperature infinite": (raw(b'{"model": "m", "messages": [], "temperature": 1e999}'), 400, "temperature", None),
    "top_p zero": (chat(top_p=0), 400, "top_p", None),
    "top_p over one": (chat(top_p=1.5), 400, "top_p", None),
    "top_k below -1": (chat(top_k=-2), 400, "top_k", None),
    "min_p over one": (chat(min_p=2), 400, "min_p", None),
    "presence_penalty": (chat(presence_penalty=3), 400, "presence_penalty", None),
    "frequency_penalty": (chat(frequency_penalty=-3), 400, "frequency_penalty", None),
    "repetition_penalty": (chat(repetition_penalty=0), 400, "repetition_penalty", None),
    "n zero": (chat(n=0), 400, "n", None),
    "too many answers": (text(prompt=["a"] * 20, n=100), 400, "n", None),
    "too many echoes": (text(prompt=["a"] * 20, n=100, echo=True, max_tokens=0), 400, "n", None),
    "endless salt": (chat(cache_salt="x" * 1000), 400, "cache_salt", None),
    "n too large": (chat(n=1000), 400, "n", None),
    "seed beyond 64 bits": (chat(seed=2**70), 400, "seed", None),
    # stop
    "stop empty": (chat(stop=""), 400, "stop", None),
    "stop with an empty string": (chat(stop=["a", ""]), 400, "stop", None),
    "stop a number": (chat(stop=3), 400, "stop", None),
    "stop of numbers": (chat(stop=[3]), 400, "stop[0]", None),
    "too many stops": (chat(stop=["a"] * 50), 400, "stop", None),
    "endless stop": (chat(stop="x" * 5000), 400, "stop", None),
    "too many stop tokens": (chat(stop_token_ids=[7] * 2000), 400, "stop_token_ids", None),
    "stop token negative": (chat(stop_token_ids=[-1]), 400, "stop_token_ids", None),
    "stop token too large": (chat(stop_token_ids=[2**70]), 400, "stop_token_ids", None),
    # logprobs, stream options
    "top_logprobs alone": (chat(top_logprobs=2), 400, "top_logprobs", None),
    "top_logprobs too many": (chat(logprobs=True, top_logprobs=21), 400, "top_logprobs", None),
    "logprobs a number in chat": (chat(logprobs=2), 400, "logprobs", None),
    "logprobs negative": (text(logprobs=-1), 400, "logprobs", None),
    "logprobs too many": (text(logprobs=21), 400, "logprobs", None),
    "stream_options without stream": (chat(stream_options={"include_usage": True}), 400, "stream_options", None),
    "echo with logprobs": (text(echo=True, logprobs=1), 400, "echo", "unsupported"),
    # not served
    "tools": (chat(tools=[TOOL]), 400, "tools", "unsupported"),
    "tool_choice": (chat(tool_choice="required"), 400, "tool_choice", "unsupported"),
    "json_object": (chat(response_format={"type": "json_object"}), 400, "response_format", "unsupported"),
    "logit_bias": (chat(logit_bias={"5": 1}), 400, "logit_bias", "unsupported"),
    "chat echo": (chat(echo=True), 400, "echo", "unsupported"),
    "suffix": (text(suffix="end"), 400, "suffix", "unsupported"),
    "best_of": (text(best_of=3), 400, "best_of", "unsupported"),
    "guided_regex": (text(guided_regex="a+"), 400, "guided_regex", "unsupported"),
}


def check(answer: httpx.Response, status: int, param: str | None, code: str | None) -> dict[str, Any]:
    """An OpenAI error body and nothing else, whoever refused."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    body = answer.json()
    assert body.keys() == {"error"}
    error = body["error"]
    assert error["type"] == "invalid_request_error"
    assert (error["param"], error["code"]) == (param, code)
    assert error["message"]
    assert "rate" not in error["message"].lower().split()
    return error


@pytest.mark.parametrize("case", TABLE, ids=str)
def test_bad_request(http: httpx.Client, case: str) -> None:
    (path, body), status, param, code = TABLE[case]
    check(http.post(path, content=body), status, param, code)


@pytest.mark.parametrize("case", ["prompt too long", "max_tokens zero", "unknown model", "tools"])
def test_bad_stream_request_is_refused_before_it_streams(http: httpx.Client, case: str) -> None:
    (path, body), status, param, code = TABLE[case]
    check(http.post(path, content=json.dumps({**json.loads(body), "stream": True})), status, param, code)


def test_too_long_prompt_tells_the_numbers(http: httpx.Client) -> None:
    (path, body), *_ = TABLE["prompt too long"]
    error = http.post(path, content=body).json()["error"]
    assert error["message"].startswith("This model's maximum context length is 1024 tokens.")
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (1103, 1024)


def test_a_template_that_raises_speaks_for_itself(http: httpx.Client) -> None:
    (path, body), *_ = TABLE["a template that raises"]
    assert "roles must alternate" in http.post(path, content=body).json()["error"]["message"]


def test_long_name_is_not_sent_back_whole(http: httpx.Client) -> None:
    answer = http.post(CHAT, content=chat(model="x" * 100_000)[1])
    check(answer, 404, "model", "model_not_found")
    assert len(answer.content) < 1000


def test_routes_that_are_not_there(http: httpx.Client) -> None:
    check(http.get("/nothing"), 404, None, None)
    wrong = http.get(CHAT)
    check(wrong, 405, None, None)
    assert wrong.headers["allow"] == "POST"
    assert "only POST" in wrong.json()["error"]["message"]
    check(http.get("/v1/models/an/other"), 404, "model", "model_not_found")


@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "chunked"])
def test_body_of_50_mb(server: SimServer, http: httpx.Client, chunked: bool) -> None:
    """Read and thrown away: the client gets to hear why."""
    body = b"x" * (50 * 2**20)
    answer = http.post(CHAT, content=iter([body[: 2**20]] * 50) if chunked else body)
    check(answer, 413, None, None)
    assert "--max-body" in answer.json()["error"]["message"]


def test_body_that_declares_a_terabyte(server: SimServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {2**40}\r\n\r\n{{".encode())
        assert b" 413 " in connection.recv(1000).split(b"\r\n")[0]


def test_unknown_fields_are_logged_once(http: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "octavo.server"):
        for _ in range(3):
            path, body = chat(field_nobody_knows=1)
            assert http.post(path, content=body).status_code == 200
    assert sum("field_nobody_knows" in record.getMessage() for record in caplog.records) == 1


def test_bug_of_ours_is_a_plain_500(caplog: pytest.LogCaptureFixture) -> None:
    """No trace leaves the server; the log has it."""
    with sim_server() as server, httpx.Client(base_url=server.url, timeout=20) as http:
        server.deps.text.template.render = None  # type: ignore[method-assign]
        path, body = chat()
        answer = http.post(path, content=body)
    assert answer.status_code == 500
    error = answer.json()["error"]
    assert error["type"] == "server_error"
    assert "NoneType" not in answer.text
    assert any("NoneType" in (record.exc_text or "") for record in caplog.records)


def test_nobody_elses_answer_changes(http: httpx.Client) -> None:
    """A long answer runs while the whole table is thrown at the server."""
    results = []
    body = {"model": MODEL, "prompt": "meanwhile", "temperature": 0, "max_tokens": 600}
    good = threading.Thread(target=lambda: results.append(http.post(TEXT, json=body).json()))
    good.start()
    for (path, bad), *_ in TABLE.values():
        http.post(path, content=bad)
    good.join(30)
    assert results[0]["choices"][0]["text"] == lone_text("meanwhile", temperature=0, max_tokens=600)
