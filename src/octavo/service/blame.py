"""Blame: which requests may have killed an engine, and when one of them is given up. Pure rules over flights.

A request that crashes the engine whenever it is computed must not take others down with it for ever; a request
that only waited while others crashed must not pay for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from octavo.service.flight import Flight

# A request is given up when this many engines died, one after another, that may have worked on it and brought it
# no token. Before its last chance it is a suspect.
DEATHS_PER_REQUEST = 3


def suspected(flight: Flight) -> bool:
    """The next death with this request is its last."""
    return flight.deaths >= DEATHS_PER_REQUEST - 1


def given_up(flight: Flight) -> bool:
    return flight.deaths >= DEATHS_PER_REQUEST


def may_have_caused(sent: Iterable[Flight], rows: int) -> list[Flight]:
    """Those of the requests in a dead engine, given in the order in which they were sent, that it may have computed.

    One certainly waited if others that go before it, by order and priority, took all `rows`.
    """
    ahead: Counter[int] = Counter()  # rows taken at least, by priority
    computed = []
    for flight in sent:
        priority = flight.request.priority
        if sum(taken for other, taken in ahead.items() if other <= priority) < rows:
            computed.append(flight)
        ahead[priority] += flight.least_rows
    return computed


def sendable(unsent: Iterable[Flight], in_engine: Iterable[Flight]) -> list[Flight]:
    """What to send of the requests that wait for an engine: all, but only one suspect at a time, so that the next
    death tells which of them it was. The next one follows when that one has had a token or its end."""
    free = not any(map(suspected, in_engine))
    chosen = []
    for flight in unsent:
        if suspected(flight):
            if not free:
                continue
            free = False
        chosen.append(flight)
    return chosen
