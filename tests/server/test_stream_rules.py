"""Every rule of the event stream that clients depend on, checked on the raw frames."""

from __future__ import annotations

import asyncio

import httpx
import pytest
import sse
from sim_server import ASCII_VOCAB, EOS, MODEL, PRINTABLE, SPECIAL, chat_prompt, lone_text, sim_server

from octavo.server.stream import KEEP_ALIVE, EventStream

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 20}
ONCE = {"model": MODEL, "prompt": "once", "temperature": 0, "max_tokens": 20}


def test_chat_chunks_have_their_shape(http: httpx.Client) -> None:
    chunks = sse.post(http, CHAT, **HELLO)
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[0]["id"].startswith("chatcmpl-")
    assert len({chunk["created"] for chunk in chunks}) == 1
    for chunk in chunks:
        assert (chunk["object"], chunk["model"], len(chunk["choices"])) == ("chat.completion.chunk", MODEL, 1)
        assert not {"usage", "timings"} & chunk.keys()
    first, *middle, last = [chunk["choices"][0] for chunk in chunks]
    assert first["delta"] == {"role": "assistant", "content": ""}
    assert all(choice["delta"].keys() == {"content"} and choice["finish_reason"] is None for choice in middle)
    assert (last["delta"], last["finish_reason"]) == ({}, "length")


def test_completion_chunks_have_their_shape(http: httpx.Client) -> None:
    chunks = sse.post(http, TEXT, **ONCE)
    assert len({(chunk["id"], chunk["created"]) for chunk in chunks}) == 1
    assert chunks[0]["id"].startswith("cmpl-")
    assert all(chunk["object"] == "text_completion" and "usage" not in chunk for chunk in chunks)
    assert sse.completion_text(sse.by_choice(chunks)[0]) == lone_text("once", temperature=0.0, max_tokens=20)


@pytest.mark.parametrize(("path", "body"), [(CHAT, HELLO), (TEXT, ONCE)], ids=["chat", "completions"])
def test_each_of_several_choices_has_one_end(http: httpx.Client, path: str, body: dict) -> None:
    choices = sse.by_choice(sse.post(http, path, **body, n=3, logprobs=1 if path == TEXT else True))
    assert sorted(choices) == [0, 1, 2]
    for parts in choices.values():
        assert [part["finish_reason"] for part in parts if part["finish_reason"]] == ["length"]
        assert parts[-1]["finish_reason"] == "length"
    if path == CHAT:
        assert all(parts[0]["delta"].get("role") == "assistant" for parts in choices.values())
        assert sum("role" in part["delta"] for parts in choices.values() for part in parts) == 3


@pytest.mark.parametrize(("path", "body"), [(CHAT, HELLO), (TEXT, ONCE)], ids=["chat", "completions"])
def test_usage_comes_once_and_only_when_asked(http: httpx.Client, path: str, body: dict) -> None:
    *others, last = sse.post(http, path, **body, stream_options={"include_usage": True})
    assert all(chunk.get("usage") is None for chunk in others)
    assert last["choices"] == []
    usage = last["usage"]
    assert usage["completion_tokens"] == 20
    assert usage["total_tokens"] == usage["prompt_tokens"] + 20
    assert usage["prompt_tokens_details"].keys() == {"cached_tokens"}
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}


def test_continuous_usage_counts_up(http: httpx.Client) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = sse.post(http, TEXT, **ONCE, stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert (counts[0] > 0, counts[-1]) == (True, 20)


def test_several_prompts_are_told_apart(http: httpx.Client) -> None:
    """index = i + prompt * n"""
    choices = sse.by_choice(sse.post(http, TEXT, **{**ONCE, "prompt": ["one", "two"], "n": 2}, echo=True))
    assert sorted(choices) == [0, 1, 2, 3]
    for index, prompt in enumerate(["one", "one", "two", "two"]):
        expected = prompt + lone_text(prompt, temperature=0.0, max_tokens=20)
        assert sse.completion_text(choices[index]) == expected


def test_no_part_of_a_stop_string_is_ever_shown(http: httpx.Client) -> None:
    whole = lone_text(chat_prompt("hello"), temperature=0.0, max_tokens=20)
    stop = whole[8:12]
    seen = ""
    choices = sse.by_choice(sse.post(http, CHAT, **HELLO, stop=[stop, "never to come"]))[0]
    for choice in choices:
        seen += choice["delta"].get("content", "")
        assert whole[: whole.index(stop)].startswith(seen)
    assert (choices[-1]["finish_reason"], choices[-1]["stop_reason"]) == ("stop", stop)
    assert seen == whole[: whole.index(stop)]


def test_logprobs_come_with_every_token(http: httpx.Client) -> None:
    choices = sse.by_choice(sse.post(http, CHAT, **HELLO, logprobs=True, top_logprobs=2))[0]
    entries = [entry for choice in choices if choice["logprobs"] for entry in choice["logprobs"]["content"]]
    assert len(entries) == 20
    texts = sse.by_choice(sse.post(http, TEXT, **ONCE, logprobs=0))[0]
    tokens = [token for choice in texts if choice["logprobs"] for token in choice["logprobs"]["tokens"]]
    offsets = [offset for choice in texts if choice["logprobs"] for offset in choice["logprobs"]["text_offset"]]
    spans = [0]
    for token in tokens:
        spans.append(spans[-1] + len(token))
    assert offsets == spans[:-1]


def test_error_after_the_first_token_is_an_event() -> None:
    """The engine dies of a token that it wrote itself, again and again."""
    whole = lone_text("once", temperature=0.0, max_tokens=20)
    fatal = next(index for index in range(4, 20) if whole[index] not in whole[:index] and whole[index] not in "once")
    poison = len(SPECIAL) + PRINTABLE.index(whole[fatal].replace(" ", "Ġ"))
    with (
        sim_server(poison_token=poison, step_s=0.02) as server,
        httpx.Client(base_url=server.url, timeout=30) as http,
    ):
        *chunks, last = sse.post(http, TEXT, **ONCE)
    assert last["error"].keys() >= {"message", "type", "param", "code"}
    assert last["error"]["type"] == "server_error"
    assert sse.completion_text(sse.by_choice(chunks)[0]) == whole[: fatal + 1]


def test_end_of_text_is_counted_and_not_shown() -> None:
    with (
        sim_server(eos_ids=(EOS,), eos_rate=1.0, vocab=ASCII_VOCAB) as server,
        httpx.Client(base_url=server.url, timeout=20) as http,
    ):
        *chunks, usage = sse.post(http, CHAT, **HELLO, stream_options={"include_usage": True})
        choices = sse.by_choice(chunks)[0]
        assert sse.chat_text(choices) == ""
        assert choices[-1]["finish_reason"] == "stop"
        assert "stop_reason" not in choices[-1]
        assert usage["usage"]["completion_tokens"] == 1


@pytest.mark.anyio
async def test_silence_is_filled_with_comments() -> None:
    async def events():
        await asyncio.sleep(0.35)
        yield b"data: 1\n\n"

    async def receive():
        await asyncio.Event().wait()

    sent = []

    async def send(message):
        sent.append(message.get("body", b""))

    ended = []
    stream = EventStream(events(), on_end=lambda: ended.append(True), keep_alive_s=0.1)
    await stream({"type": "http"}, receive, send)
    assert sent.count(KEEP_ALIVE) == 3
    assert sent[-2:] == [b"data: 1\n\n", b""]
    assert ended == [True]
