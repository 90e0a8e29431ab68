"""The official client, synchronous and asynchronous, gets what it expects: answers, streams, and its own exception
classes for errors.
"""

from __future__ import annotations

import openai
import pytest
from sim_server import MODEL, SimServer, chat_prompt, lone_text, sim_server

HELLO = [{"role": "user", "content": "hello"}]
GREEDY = {"temperature": 0, "max_tokens": 30}
HELLO_TEXT = lone_text(chat_prompt("hello"), temperature=0.0, max_tokens=30)


def test_chat_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=HELLO, **GREEDY)
    assert answer.choices[0].message.content == HELLO_TEXT
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.prompt_tokens == 8
    assert answer.usage.completion_tokens == 30
    assert answer.usage.total_tokens == 38
    assert answer._request_id


def test_chat_stream_has_the_same_text(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(model=MODEL, messages=HELLO, stream=True, **GREEDY))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == HELLO_TEXT


def test_stream_helper_accumulates(client: openai.OpenAI) -> None:
    """The helper demands an answer that stopped by itself."""
    stop = HELLO_TEXT[20:23]
    with client.chat.completions.stream(
        model=MODEL, messages=HELLO, stop=stop, stream_options={"include_usage": True}, **GREEDY
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == HELLO_TEXT[: HELLO_TEXT.index(stop)]
    assert final.usage.completion_tokens >= 23


def test_completion_answer_and_stream(client: openai.OpenAI) -> None:
    expected = lone_text("once upon", temperature=0.0, max_tokens=16)
    answer = client.completions.create(model=MODEL, prompt="once upon", temperature=0)
    assert answer.choices[0].text == expected  # 16 tokens by default
    stream = client.completions.create(model=MODEL, prompt="once upon", temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == expected


@pytest.mark.anyio
async def test_async_client(server: SimServer) -> None:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        answer = await client.chat.completions.create(model=MODEL, messages=HELLO, **GREEDY)
        assert answer.choices[0].message.content == HELLO_TEXT
        stream = await client.chat.completions.create(model=MODEL, messages=HELLO, stream=True, **GREEDY)
        parts = [chunk.choices[0].delta.content or "" async for chunk in stream]
        assert "".join(parts) == HELLO_TEXT


def test_models(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert (model.id, model.object, model.owned_by) == (MODEL, "model", "octavo")
    assert client.models.retrieve(MODEL).id == MODEL  # the id has a slash
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another")


def test_errors_become_the_clients_classes(client: openai.OpenAI) -> None:
    create = client.chat.completions.create
    with pytest.raises(openai.BadRequestError) as bad:
        create(model=MODEL, messages=HELLO, temperature=9)
    assert (bad.value.param, bad.value.type) == ("temperature", "invalid_request_error")
    with pytest.raises(openai.NotFoundError) as missing:
        create(model="another", messages=HELLO)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        create(model=MODEL, messages=[{"role": "user", "content": "x" * 2000}])
    assert long.value.code == "context_length_exceeded"
    assert "This model's maximum context length is" in long.value.message


def test_loading_engine_is_unavailable() -> None:
    with (
        sim_server(wait=False, load_s=30) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        with pytest.raises(openai.InternalServerError) as loading:
            client.chat.completions.create(model=MODEL, messages=HELLO)
        assert loading.value.status_code == 503
        assert loading.value.response.headers["retry-after"].isdigit()


@pytest.mark.parametrize("stream", [False, True])
def test_request_that_kills_every_engine_is_given_up(stream: bool) -> None:
    """The client is told not to send it again."""
    with (
        sim_server(poison_token=4 + ord("~") - 33) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        with pytest.raises(openai.APIError) as died:
            client.completions.create(model=MODEL, prompt="~", stream=stream)
        assert "given up" in died.value.message
        if not stream:
            assert died.value.response.headers["x-should-retry"] == "false"
        assert client.completions.create(model=MODEL, prompt="fine", temperature=0).choices[0].text == lone_text(
            "fine", temperature=0.0, max_tokens=16
        )
