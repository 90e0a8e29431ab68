"""Streams from a healthy engine: the right tokens, refusals, aborts, slow readers, crowds."""

import asyncio
import os
import signal
import time

import pytest
from sim_client import alone, ask, read, read_one, running

from octavo.errors import EngineUnavailable, InvalidRequest, QueueFull
from octavo.service.client import EngineClient
from octavo.types import FinishReason

pytestmark = pytest.mark.anyio


async def test_tokens_are_those_of_the_lone_run() -> None:
    spec = {"eos_rate": 0.05, "rows": 4, "chunk": 8}
    requests = [
        ask(f"r{i}", [i + 1] * (3 + 7 * i), seed=i, max_tokens=15 + i, n=1 + i % 3, temperature=float(i % 2))
        for i in range(8)
    ]
    async with running(**spec) as client:
        answers = await asyncio.gather(*(read(client.submit(request)) for request in requests))
        assert client.unfinished == 0
        assert client.stats.blocks_used == client.stats.running == client.stats.waiting == 0
    for request, choices in zip(requests, answers, strict=True):
        for choice, answer in enumerate(choices):
            assert answer.is_whole(alone(request, choice, **spec), len(request.prompt))


async def test_logprobs_align_with_tokens() -> None:
    async with running() as client:
        answer = await read_one(client.submit(ask(logprobs=2)))
    assert [logprob.token for logprob in answer.logprobs] == answer.tokens
    assert {len(logprob.top) for logprob in answer.logprobs} == {2}


async def test_requests_with_the_same_id_do_not_mix() -> None:
    first, second = ask("same", [1, 2]), ask("same", [3, 4])
    async with running() as client:
        answers = await asyncio.gather(read_one(client.submit(first)), read_one(client.submit(second)))
    assert [answer.tokens for answer in answers] == [alone(first).tokens, alone(second).tokens]


async def test_a_refused_request_gets_an_error_for_each_choice() -> None:
    async with running(max_len=64) as client:
        answers = await read(client.submit(ask(prompt=[1] * 100, n=3)))
        kinds = [answer.error_kind for answer in answers]
        assert kinds == ["ContextLengthExceeded"] * 3
        assert (await read_one(client.submit(ask()))).finish is FinishReason.LENGTH


@pytest.mark.parametrize("token", [10**30, -(10**30)])
async def test_numbers_beyond_64_bits_are_refused_at_once(token: int) -> None:
    async with running() as client:
        with pytest.raises(InvalidRequest, match="cannot be passed on"):
            client.submit(ask(prompt=[token]))
        assert client.unfinished == 0


async def test_2000_requests_at_once() -> None:
    async with running(queue=16, rows=4) as client:
        streams = [client.submit(ask(f"r{i}", max_tokens=2)) for i in range(2000)]
        answers = await asyncio.gather(*map(read_one, streams))
        kinds = {answer.error_kind for answer in answers if answer.finish is FinishReason.ERROR}
        served = sum(answer.finish is FinishReason.LENGTH for answer in answers)
        assert kinds == {"QueueFull"}
        assert served >= 16
        assert (await read_one(client.submit(ask()))).finish is FinishReason.LENGTH


async def test_an_abort_frees_the_blocks_within_two_steps() -> None:
    async with running(step_s=0.02) as client:
        stream = client.submit(ask(prompt=[5] * 50, max_tokens=900))
        await anext(stream)
        before = client.stats
        assert before.blocks_used > 0
        stream.abort()
        *_, last = [outputs async for outputs in stream]
        assert last[-1].finish is FinishReason.ABORT
        assert client.stats.blocks_used == 0
        assert client.stats.steps - before.steps <= 2


async def test_one_choice_is_aborted_and_the_others_go_on() -> None:
    request = ask(n=3, temperature=1.0, max_tokens=40)
    async with running(step_s=0.005) as client:
        stream = client.submit(request)
        stream.abort(1)
        stream.abort(1)
        answers = await read(stream)
        stream.abort()
    assert answers[1].finish is FinishReason.ABORT
    assert answers[0].is_whole(alone(request, 0), 3)
    assert answers[2].is_whole(alone(request, 2), 3)


async def test_a_slow_reader_holds_up_nobody_and_misses_nothing() -> None:
    slow, quick = ask("slow", max_tokens=100), ask("quick", [9, 9], max_tokens=200)
    async with running() as client:
        stream = client.submit(slow)
        assert (await read_one(client.submit(quick))).is_whole(alone(quick), 2)
        assert stream.done
        batches = [outputs async for outputs in stream]
    assert len(batches) == 1
    assert [token for output in batches[0] for token in output.tokens] == alone(slow).tokens


async def test_a_full_pipe_does_not_block_the_event_loop() -> None:
    requests = [ask(f"r{i}", [i + 1] * 900, max_tokens=2) for i in range(64)]
    async with running(queue=1000) as client:
        assert client.pid is not None
        os.kill(client.pid, signal.SIGSTOP)
        began = time.perf_counter()
        streams = [client.submit(request) for request in requests]
        await asyncio.sleep(0.05)
        assert time.perf_counter() - began < 1
        os.kill(client.pid, signal.SIGCONT)
        answers = await asyncio.gather(*map(read_one, streams))
    assert [answer.tokens for answer in answers] == [alone(request).tokens for request in requests]


async def test_times_are_those_of_arrival_not_of_reading() -> None:
    async with running(step_s=0.05) as client:
        stream = client.submit(ask(max_tokens=1))
        await asyncio.sleep(0.5)
        assert stream.first_token_s is not None
        assert 0.05 <= stream.first_token_s - stream.submitted_s < 0.4


async def test_requests_wait_for_an_engine_that_loads_up_to_the_limit() -> None:
    client = EngineClient("octavo.sim.build:build_sim_engine", {"load_s": 0.3, "queue": 1, "rows": 1}, queue=4)
    await client.start()
    assert client.state == "loading"
    streams = [client.submit(ask(f"r{i}")) for i in range(4)]
    assert client.stats.waiting == 4
    with pytest.raises(QueueFull):
        client.submit(ask())
    streams[2].abort()
    answers = await asyncio.gather(*map(read_one, streams))
    await client.close()
    finishes = [answer.finish for answer in answers]
    assert finishes == [FinishReason.LENGTH, FinishReason.LENGTH, FinishReason.ABORT, FinishReason.LENGTH]


async def test_draining_finishes_what_was_taken_and_takes_no_more() -> None:
    async with running(step_s=0.005) as client:
        stream = client.submit(ask(max_tokens=20))
        assert not await client.drain(0.01)
        with pytest.raises(EngineUnavailable):
            client.submit(ask())
        assert await client.drain(5)
        assert (await read_one(stream)).finish is FinishReason.LENGTH


async def test_closing_ends_what_is_unfinished_with_an_error() -> None:
    async with running(step_s=0.005) as client:
        stream = client.submit(ask(max_tokens=900))
        await anext(stream)
        await client.close()
        *_, last = [outputs async for outputs in stream]
        assert last[-1].finish is FinishReason.ERROR
        assert last[-1].error is not None
        assert last[-1].error.kind == "EngineUnavailable"
        with pytest.raises(EngineUnavailable):
            client.submit(ask())
