"""Answers that are not streamed, and what request fields mean: choices, seeds, stops, limits, echo, log-probabilities,
messages.
"""

from __future__ import annotations

import httpx
import pytest
from sim_server import FULL_VOCAB, MODEL, SPECIAL, chat_prompt, lone_text, sim_server, tiny_text

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
GREEDY = {"model": MODEL, "temperature": 0, "max_tokens": 12}


def ask(http: httpx.Client, path: str, **body: object) -> dict:
    answer = http.post(path, json={**GREEDY, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def chat(http: httpx.Client, *messages: dict, **body: object) -> dict:
    return ask(http, CHAT, messages=list(messages), **body)


def user(content: object) -> dict:
    return {"role": "user", "content": content}


def test_bodies_have_their_shape(http: httpx.Client) -> None:
    body = chat(http, user("hi"))
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    (choice,) = body["choices"]
    assert choice["message"].keys() == {"role", "content", "refusal"}
    assert (choice["index"], choice["logprobs"], choice["finish_reason"]) == (0, None, "length")
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}
    assert "timings" not in body
    body = ask(http, TEXT, prompt="hi")
    assert body["object"] == "text_completion"
    assert body["choices"][0].keys() == {"index", "text", "logprobs", "finish_reason"}


def test_seed_repeats_and_its_absence_varies(http: httpx.Client) -> None:
    def text(**body: object) -> str:
        return ask(http, TEXT, prompt="hi", **{"temperature": 1, "max_tokens": 24, **body})["choices"][0]["text"]

    assert text(seed=5) == text(seed=5) == lone_text("hi", seed=5, max_tokens=24)
    assert text(seed=-(2**63)) == lone_text("hi", seed=-(2**63), max_tokens=24)
    assert len({text() for _ in range(3)}) == 3


def test_choices_differ_by_their_index_only(http: httpx.Client) -> None:
    body = ask(http, TEXT, prompt=["ab", "cd"], n=2, temperature=1, seed=3)
    texts = [choice["text"] for choice in body["choices"]]
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    expected = [lone_text(p, seed=3, choice=i, max_tokens=12) for p in ("ab", "cd") for i in (0, 1)]
    assert texts == expected
    assert body["usage"]["prompt_tokens"] == 4
    assert body["usage"]["completion_tokens"] == 48


def test_prompts_in_all_four_forms(http: httpx.Client) -> None:
    ids = tiny_text().tokenizer.encode("once", add_special=False)
    for prompt in ("once", ["once"], ids, [ids]):
        assert ask(http, TEXT, prompt=prompt)["choices"][0]["text"] == lone_text("once", temperature=0, max_tokens=12)


def test_repeated_prompt_is_cached(http: httpx.Client) -> None:
    prompt = "a prompt of more than sixteen tokens, said twice"
    first, second = (ask(http, TEXT, prompt=prompt)["usage"] for _ in range(2))
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens_details"]["cached_tokens"] == 32
    salted = ask(http, TEXT, prompt=prompt, cache_salt="mine")["usage"]
    assert salted["prompt_tokens_details"]["cached_tokens"] == 0


def test_stop_as_string_list_and_token(http: httpx.Client) -> None:
    whole = lone_text("once", temperature=0, max_tokens=12)
    stop = whole[5:7]
    cut = whole[: whole.index(stop)]
    for given in (stop, [stop], ["not in there", stop]):
        choice = ask(http, TEXT, prompt="once", stop=given)["choices"][0]
        assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (cut, "stop", stop)
    choice = ask(http, TEXT, prompt="once", stop=stop, include_stop_str_in_output=True)["choices"][0]
    assert choice["text"] == cut + stop
    (token,) = tiny_text().tokenizer.encode(whole[5], add_special=False)
    choice = ask(http, TEXT, prompt="once", stop_token_ids=[token])["choices"][0]
    assert (choice["text"], choice["stop_reason"]) == (whole[: whole.index(whole[5])], token)


def test_limits_on_length(http: httpx.Client) -> None:
    def counted(path: str, **body: object) -> int:
        return ask(http, path, **body)["usage"]["completion_tokens"]

    assert counted(TEXT, prompt="hi", max_tokens=None) == 16
    assert counted(TEXT, prompt="x" * 1020, max_tokens=None) == 4  # the default gives way to the context
    assert counted(CHAT, messages=[user("x" * 980)], max_tokens=None) == 1024 - 983
    assert counted(CHAT, messages=[user("hi")], max_tokens=5, max_completion_tokens=7) == 7


def test_echo(http: httpx.Client) -> None:
    body = ask(http, TEXT, prompt="once", echo=True)
    assert body["choices"][0]["text"] == "once" + lone_text("once", temperature=0, max_tokens=12)
    body = ask(http, TEXT, prompt=["one", "three"], echo=True, max_tokens=0, n=2)
    assert [choice["text"] for choice in body["choices"]] == ["one", "one", "three", "three"]
    assert body["usage"]["prompt_tokens"] == 8
    assert body["usage"]["completion_tokens"] == 0


def test_chat_logprobs(http: httpx.Client) -> None:
    choice = chat(http, user("hi"), logprobs=True, top_logprobs=3)["choices"][0]
    content = choice["logprobs"]["content"]
    assert choice["logprobs"]["refusal"] is None
    assert len(content) == 12
    for entry in content:
        assert entry.keys() == {"token", "logprob", "bytes", "top_logprobs"}
        assert bytes(entry["bytes"]).decode() == entry["token"]
        assert len(entry["top_logprobs"]) == 3
        assert entry["top_logprobs"][0] == {key: entry[key] for key in ("token", "logprob", "bytes")}
    shown = "".join(entry["token"] for entry in content if entry["token"] not in SPECIAL)
    assert shown == choice["message"]["content"]
    bare = chat(http, user("hi"), logprobs=True)["choices"][0]["logprobs"]["content"]
    assert all(entry["top_logprobs"] == [] for entry in bare)


def test_completion_logprobs(http: httpx.Client) -> None:
    logprobs = ask(http, TEXT, prompt="hi", logprobs=2)["choices"][0]["logprobs"]
    assert logprobs.keys() == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    for token, logprob, top in zip(*(logprobs[k] for k in ("tokens", "token_logprobs", "top_logprobs")), strict=True):
        assert max(top, key=top.get) == token
        assert top[token] == logprob
        assert len(top) == 2
    chosen_only = ask(http, TEXT, prompt="hi", logprobs=0)["choices"][0]["logprobs"]["top_logprobs"]
    assert all(len(top) == 1 for top in chosen_only)


def test_messages_are_flattened_and_developer_is_system(http: httpx.Client) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    with sim_server(vocab=FULL_VOCAB) as server, httpx.Client(base_url=server.url, timeout=20) as full:
        as_parts = chat(full, {"role": "developer", "content": parts}, user("é漢🙂"))
        as_text = chat(full, {"role": "system", "content": "one\ntwo"}, user("é漢🙂"))
    assert as_parts["choices"] == as_text["choices"]
    prompt = "<|system|>one\ntwo<|end|><|user|>é漢🙂<|end|><|assistant|>"
    assert as_text["choices"][0]["message"]["content"] == lone_text(
        prompt, vocab=FULL_VOCAB, temperature=0, max_tokens=12
    )


def test_generation_prompt_and_continuation(http: httpx.Client) -> None:
    def text(**body: object) -> str:
        turns = [user("hi"), {"role": "assistant", "content": "Well, "}]
        return chat(http, *turns, **body)["choices"][0]["message"]["content"]

    def expected(prompt: str) -> str:
        return lone_text(prompt, temperature=0, max_tokens=12)

    begun = chat_prompt("hi") + "Well, "
    assert text() == expected(chat_prompt("hi", "Well, "))
    assert text(add_generation_prompt=False) == expected(begun + "<|end|>")
    assert text(continue_final_message=True) == expected(begun)
    assert text(chat_template_kwargs={"shout": True}) == expected(chat_prompt("hi", "Well, ") + "!")


@pytest.mark.parametrize(
    "extra",
    [
        {"user": "me", "metadata": {"a": "b"}, "store": False, "reasoning_effort": "low"},
        {"tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "logit_bias": {}},
        {"temperature": None, "n": None, "stop": None, "stream": None, "stream_options": None, "top_p": None},
        {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0, "ignore_eos": True},
        {"top_k": 2**40},
        {"a_field_of_tomorrow": 1},
    ],
)
def test_harmless_fields_are_accepted(http: httpx.Client, extra: dict) -> None:
    assert chat(http, user("hi"), **extra)["choices"][0]["finish_reason"] == "length"


def test_request_id_comes_back(http: httpx.Client) -> None:
    assert http.get("/version", headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    first, second = (http.get("/version").headers["x-request-id"] for _ in range(2))
    assert first != second
    assert http.get("/version", headers={"x-request-id": "a\tb"}).headers["x-request-id"] != "a\tb"


def test_pages_of_this_machine_only(http: httpx.Client) -> None:
    for origin, allowed in [
        ("http://localhost:3000", True),
        ("https://example.com", False),
        ("http://localhost.evil.com", False),
    ]:
        headers = http.get("/v1/models", headers={"origin": origin}).headers
        assert ("access-control-allow-origin" in headers) is allowed
