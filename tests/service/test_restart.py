"""The engine is killed, over and over or for good: streams go on as if nothing had been, or end with a clean error."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from sim_client import Answer, alone, ask, read, read_one, running

from octavo.errors import ConfigError, EngineDied, EngineUnavailable
from octavo.service.client import EngineClient
from octavo.service.stream import Stream
from octavo.types import FinishReason, Request

pytestmark = pytest.mark.anyio

POISON = 666


def _kill(client: EngineClient) -> None:
    assert client.pid is not None
    os.kill(client.pid, signal.SIGKILL)


async def _read_and_kill(stream: Stream, client: EngineClient, at: set[int]) -> list[Answer]:
    """Read a stream, and kill the engine when so many batches have come."""
    answers = [Answer() for _ in range(stream.request.params.n)]
    batches = 0
    async for outputs in stream:
        for output in outputs:
            answers[output.choice].add(output)
        batches += 1
        if batches in at:
            _kill(client)
    return answers


async def test_streams_go_on_after_each_of_five_kills() -> None:
    spec = {"step_s": 0.005, "rows": 4, "eos_rate": 0.01}
    watched = ask("watched", [7] * 20, max_tokens=60, n=2, temperature=1.0, logprobs=1, seed=8, ignore_eos=True)
    others = [ask(f"o{i}", [i + 1] * 30, max_tokens=40, seed=i, temperature=1.0) for i in range(6)]
    async with running(**spec) as client:
        stream = client.submit(watched)
        reading = [asyncio.create_task(read_one(client.submit(request))) for request in others]
        answers = await _read_and_kill(stream, client, {1, 5, 10, 20, 30})
        assert client.restarts == 5
        for request, answer in zip(others, await asyncio.gather(*reading), strict=True):
            assert answer.is_whole(alone(request, **spec), 30)
        assert client.stats.blocks_used == 0
    for choice, answer in enumerate(answers):
        assert answer.is_whole(alone(watched, choice, **spec), 20)
        assert [logprob.token for logprob in answer.logprobs] == answer.tokens
        assert answer.usages == 2


async def test_usage_after_a_restart_is_that_of_the_first_run() -> None:
    prompt = list(range(1, 65))
    async with running(step_s=0.005) as client:
        await read(client.submit(ask("fills the prefix cache", prompt)))
        (answer,) = await _read_and_kill(client.submit(ask("hits it", prompt)), client, {5})
        assert client.restarts == 1
    assert answer.final is not None
    assert answer.final.usage is not None
    assert answer.final.usage.cached_tokens == 48


async def test_totals_never_go_backwards() -> None:
    async with running(step_s=0.002) as client:
        await read(client.submit(ask()))
        before = client.stats
        _kill(client)
        while client.state == "ready":
            await asyncio.sleep(0.01)
        between = client.stats
        assert (between.generated_tokens, between.steps, between.finished) == (20, before.steps, 1)
        assert (between.blocks_total, between.blocks_used, between.blocks_cached) == (before.blocks_total, 0, 0)
        await client.ready()
        await read(client.submit(ask()))
        assert (client.stats.generated_tokens, client.stats.finished) == (40, 2)


async def test_more_requests_than_the_queue_holds_survive_a_restart() -> None:
    requests = [ask(f"r{i}", [i + 1], max_tokens=30) for i in range(12)]
    async with running(rows=8, queue=4, step_s=0.005) as client:
        streams = []
        for few in (requests[:4], requests[4:8]):
            streams += [client.submit(request) for request in few]
            await asyncio.gather(*map(anext, streams[-4:]))
        streams += [client.submit(request) for request in requests[8:]]
        await anext(streams[0])
        _kill(client)
        finishes = [answer.finish for answer in await asyncio.gather(*map(_read_on, streams))]
        assert finishes == [FinishReason.LENGTH] * 12
        assert client.restarts == 1


async def _read_on(stream: Stream) -> Answer:
    """Read on where somebody else has begun."""
    answer = Answer()
    async for outputs in stream:
        for output in outputs:
            answer.tokens += output.tokens
            answer.final = output
    return answer


@pytest.mark.parametrize("asked_before_the_death", [True, False])
async def test_an_abort_around_a_restart_is_honoured(asked_before_the_death: bool) -> None:
    async with running(step_s=0.1, load_s=1.0) as client:
        stream = client.submit(ask(max_tokens=500, n=2))
        await anext(stream)
        if asked_before_the_death:
            stream.abort()
        _kill(client)
        while client.state == "ready":
            await asyncio.sleep(0.01)
        if not asked_before_the_death:
            stream.abort()
        *_, last = [outputs async for outputs in stream]
        assert [output.finish for output in last[-2:]] == [FinishReason.ABORT] * 2
        assert client.state == "restarting"
        await client.ready()
        assert (await read_one(client.submit(ask(max_tokens=1)))).finish is FinishReason.LENGTH


@pytest.mark.parametrize("poisons", [1, 3])
async def test_poison_is_found_out_and_nobody_else_pays(poisons: int) -> None:
    """Each of the requests was in three deaths or fewer; only those that caused them are given up."""
    good = [ask(f"good{i}", [i + 1] * 10, max_tokens=5) for i in range(5)]
    bad = [ask(f"bad{i}", [POISON], max_tokens=5) for i in range(poisons)]
    async with running(poison_token=POISON) as client:
        streams = [client.submit(request) for request in (*good[:2], *bad, *good[2:])]
        answers = {s.request.id: a for s, a in zip(streams, await asyncio.gather(*map(read_one, streams)), strict=True)}
        await client.ready()
        assert client.restarts == 2 + poisons
        assert (await read_one(client.submit(ask()))).finish is FinishReason.LENGTH
    assert {answers[request.id].error_kind for request in bad} == {"EngineDied"}
    for request in good:
        assert answers[request.id].is_whole(alone(request), 10)


async def _refused_for_good(client: EngineClient, waiting: Stream) -> None:
    assert client.state == "dead"
    answer = await read_one(waiting)
    assert (answer.finish, answer.error_kind) == (FinishReason.ERROR, "EngineUnavailable")
    with pytest.raises(EngineUnavailable):
        client.submit(ask())


async def test_a_typed_error_of_loading_is_raised_by_ready() -> None:
    async with running(wait=False, load_error="the weights need 90 GiB") as client:
        waiting = client.submit(ask())
        with pytest.raises(ConfigError, match="the weights need 90 GiB"):
            await client.ready()
        await _refused_for_good(client, waiting)


async def test_an_unexpected_error_of_loading_is_told_and_not_repeated() -> None:
    async with running("odd_factories:raises", wait=False) as client:
        waiting = client.submit(ask())
        with pytest.raises(EngineDied, match="ZeroDivisionError: a bug in loading"):
            await client.ready()
        await _refused_for_good(client, waiting)
        assert client.restarts == 0


async def test_an_engine_killed_while_loading_is_tried_three_times(tmp_path: Path) -> None:
    lives = tmp_path / "lives"
    async with running("odd_factories:is_killed", wait=False, lives=str(lives)) as client:
        waiting = client.submit(ask())
        with pytest.raises(EngineDied, match="killed by signal 9"):
            await client.ready()
        await _refused_for_good(client, waiting)
    assert lives.read_text() == "xxx"


async def test_an_engine_that_cannot_load_again_ends_everything(tmp_path: Path) -> None:
    async with running("odd_factories:loads_once", mark=str(tmp_path / "mark"), step_s=0.01) as client:
        stream = client.submit(ask(max_tokens=500))
        await anext(stream)
        _kill(client)
        *_, last = [outputs async for outputs in stream]
        assert last[-1].error is not None
        assert "the memory went to somebody else" in last[-1].error.message
        with pytest.raises(ConfigError):
            await client.ready()


async def test_a_killed_idle_engine_is_replaced() -> None:
    request: Request = ask()
    async with running() as client:
        for _ in range(4):
            _kill(client)
            while client.state == "ready":
                await asyncio.sleep(0.01)
            assert (await read_one(client.submit(request))).is_whole(alone(request), 3)
        assert client.restarts == 4
