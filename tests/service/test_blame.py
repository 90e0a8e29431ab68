"""Deaths are blamed on requests that an engine may have computed, and suspects go in one at a time."""

import itertools

from octavo.service.blame import DEATHS_PER_REQUEST, given_up, may_have_caused, sendable, suspected
from octavo.service.flight import Flight
from octavo.types import Output, Request, SamplingParams


def _flight(*, deaths: int = 0, priority: int = 0, n: int = 1, begun: bool = False) -> Flight:
    flight = Flight(Request(id="r", prompt=[1], params=SamplingParams(n=n), seed=1, priority=priority))
    flight.submissions(itertools.count(1))
    if begun:
        flight.deliver(Output("x", 0, [7]))
    flight.deaths = deaths
    return flight


def test_requests_behind_full_rows_are_innocent() -> None:
    flights = [_flight() for _ in range(5)]
    assert may_have_caused(flights, rows=3) == flights[:3]


def test_choices_take_a_row_each_once_they_have_begun() -> None:
    whole, begun, last = _flight(n=3), _flight(n=3, begun=True), _flight()
    assert may_have_caused([whole, last], rows=2) == [whole, last]
    assert may_have_caused([begun, last], rows=3) == [begun]


def test_only_those_ahead_in_order_and_priority_hold_up() -> None:
    """A request that came later runs first if it is more urgent; one that came first may be running already."""
    first, urgent, late = _flight(priority=1), _flight(priority=0), _flight(priority=1)
    assert may_have_caused([first, urgent, late], rows=1) == [first, urgent]


def test_one_suspect_at_a_time() -> None:
    suspects = [_flight(deaths=DEATHS_PER_REQUEST - 1) for _ in range(2)]
    others = [_flight(), _flight(deaths=1)]
    unsent = [suspects[0], others[0], suspects[1], others[1]]
    assert sendable(unsent, []) == [suspects[0], *others]
    assert sendable(unsent, [suspects[0]]) == others
    assert sendable(unsent, others) == [suspects[0], *others]


def test_the_last_chance_comes_before_the_end() -> None:
    chances = [(suspected(flight), given_up(flight)) for flight in (_flight(deaths=d) for d in range(4))]
    assert chances == [(False, False), (False, False), (True, False), (True, True)]
