"""Flight goes on where the dead engine stopped, and hides from the consumer that there was more than one."""

import itertools

import msgspec
from sim_client import ask

from octavo.service.flight import Flight
from octavo.types import FinishReason, Output, Usage


def _token(engine_id: str, choice: int, token: int, usage: Usage | None = None) -> Output:
    return Output(engine_id, choice, [token], usage=usage)


def test_a_request_that_has_not_begun_is_sent_whole_each_time() -> None:
    request = ask("r", n=3)
    flight, serials = Flight(request), itertools.count(1)
    (first,), (second,) = flight.submissions(serials), flight.submissions(serials)
    assert first.id != second.id
    assert (second.prompt, second.params, second.choice) == (request.prompt, request.params, 0)
    assert flight.engine_ids == [second.id]
    assert {choice.engine_id for choice in flight.open.values()} == {second.id}
    assert flight.least_rows == 1


def test_open_choices_resume_one_by_one_after_their_tokens() -> None:
    request = ask("r", n=3, temperature=1.0)
    flight, serials = Flight(request), itertools.count(1)
    (whole,) = flight.submissions(serials)
    flight.deliver(_token(whole.id, 0, 7))
    flight.deliver(_token(whole.id, 0, 8))
    flight.deliver(Output(whole.id, 2, [], finish=FinishReason.STOP, stop_token=0, usage=Usage(3, 1, 0)))
    resumed = flight.submissions(serials)
    assert [(r.choice, r.generated, r.params.n, r.seed) for r in resumed] == [(0, [7, 8], 1, 1), (1, [], 1, 1)]
    assert flight.engine_ids == [r.id for r in resumed]
    assert len({whole.id, *flight.engine_ids}) == 3
    assert flight.least_rows == 2


def test_an_aborted_choice_does_not_come_back() -> None:
    flight = Flight(ask("r", n=2))
    flight.finish(flight.open[0], FinishReason.ABORT)
    assert [r.choice for r in flight.submissions(itertools.count(1))] == [1]


def test_tokens_that_the_request_came_with_are_resumed_too() -> None:
    flight = Flight(msgspec.structs.replace(ask("r"), generated=[5, 6], choice=4))
    serials = itertools.count(1)
    (first,) = flight.submissions(serials)
    assert (first.generated, first.choice) == ([5, 6], 4)
    flight.deliver(_token(first.id, 4, 7))
    assert flight.submissions(serials)[0].generated == [5, 6, 7]


def test_usage_is_told_twice_and_as_the_first_engine_saw_the_prompt() -> None:
    flight, serials = Flight(ask("r")), itertools.count(1)
    flight.submissions(serials)
    first, again = _token("x", 0, 7, Usage(3, 1, 2)), _token("y", 0, 8, Usage(3, 2, 0))
    final = Output("y", 0, [9], finish=FinishReason.LENGTH, usage=Usage(3, 3, 0))
    flight.deliver(first)
    flight.submissions(serials)
    flight.deliver(again)
    flight.deliver(final)
    assert [output.usage for output in (first, again, final)] == [Usage(3, 1, 2), None, Usage(3, 3, 2)]
    assert {output.request_id for output in (first, again, final)} == {"r"}
    assert flight.open == {}


def test_a_token_clears_the_blame() -> None:
    flight = Flight(ask("r"))
    flight.deaths = 2
    flight.deliver(_token("x", 0, 7, Usage(3, 1, 0)))
    assert flight.deaths == 0


def test_an_end_without_an_engine_counts_what_was_delivered() -> None:
    flight = Flight(ask("r"))
    flight.deliver(_token("x", 0, 7, Usage(3, 1, 2)))
    output = flight.finish(flight.open[0], FinishReason.ABORT)
    assert (output.request_id, output.usage, output.tokens) == ("r", Usage(3, 1, 2), [])
