"""Stop strings: the answer over any cutting of the text equals a search of the whole; nothing is held back but what
may still become a match; the work is linear.
"""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidRequest
from octavo.text.stop import MAX_STOP_CHARS, StopMatcher, StopStrings

few_letters = st.text(alphabet="ab\u00e9", max_size=40)
stop_sets = st.lists(st.text(alphabet="ab\u00e9", min_size=1, max_size=5), max_size=5)


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


def run(matcher: StopMatcher, chunks: list[str]) -> tuple[str, str | None]:
    shown = ""
    for chunk in chunks:
        text, stop = matcher.push(chunk)
        shown += text
        if stop is not None:
            return shown, stop
    return shown + matcher.finish(), None


def search(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    """The definition, by str.find: completed first, then the longest."""
    found = [(text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
    if not found:
        return text, None
    end, _, stop = min(found)
    return text[: end if include else end - len(stop)], stop


@given(few_letters, stop_sets, st.lists(st.integers(0, 100), max_size=8), st.booleans())
def test_any_cutting_equals_a_search_of_the_whole(text, stops, places, include):
    assert run(StopMatcher(StopStrings(stops), include=include), cut(text, places)) == search(text, stops, include)


@given(few_letters, st.text(alphabet="ab", min_size=1, max_size=4), st.lists(st.integers(0, 100), max_size=8))
def test_one_stop_string_is_str_find(text, stop, places):
    shown, matched = run(StopMatcher(StopStrings([stop])), cut(text, places))
    start = text.find(stop)
    assert (shown, matched) == ((text, None) if start < 0 else (text[:start], stop))


@given(few_letters, stop_sets)
def test_only_a_possible_beginning_is_held_back(text, stops):
    """After every character: what is not yet shown is the longest suffix that begins some stop string."""
    matcher, shown = StopMatcher(StopStrings(stops)), ""
    for position, char in enumerate(text, start=1):
        new, stop = matcher.push(char)
        shown += new
        if stop is not None:
            return
        seen = text[:position]
        begun = [size for size in range(len(seen) + 1) if any(s.startswith(seen[len(seen) - size :]) for s in stops)]
        assert len(seen) - len(shown) == max(begun, default=0)


def test_text_after_the_match_is_never_shown():
    assert StopMatcher(StopStrings(["STOP"])).push("one STOP two") == ("one ", "STOP")
    assert StopMatcher(StopStrings(["STOP"]), include=True).push("one STOP two") == ("one STOP", "STOP")


def test_the_match_completed_first_wins_and_of_those_the_longest():
    assert StopMatcher(StopStrings(["abcd", "bc"])).push("abcd") == ("a", "bc")
    assert StopMatcher(StopStrings(["c", "abc", "bc"])).push("xabc") == ("x", "abc")


def test_no_stop_strings_hold_nothing():
    matcher = StopMatcher(StopStrings([]))
    assert matcher.push("anything") == ("anything", None)
    assert matcher.finish() == ""


@pytest.mark.parametrize("stop", ["", "x" * (MAX_STOP_CHARS + 1)])
def test_unusable_stop_strings_are_refused(stop):
    with pytest.raises(InvalidRequest, match="stop strings must have 1 to 1024") as caught:
        StopMatcher(StopStrings([stop]))
    assert caught.value.param == "stop"


def test_time_is_linear_in_the_text_with_many_near_misses():
    """Every position lies a thousand characters deep in sixteen stop strings, none of which ever comes."""
    stops = ["a" * (MAX_STOP_CHARS - 1) + letter for letter in "bcdefghijklmnopq"]

    def seconds(characters: int) -> float:
        matcher = StopMatcher(StopStrings(stops))
        start = time.process_time()
        for _ in range(characters // 4):
            matcher.push("aaaa")
        return time.process_time() - start

    short, long = (min(seconds(characters) for _ in range(3)) for characters in (20_000, 80_000))
    assert long < 8 * short
    assert long < 1.0


def test_choices_share_stop_strings_and_nothing_else():
    stops = StopStrings(["ab"])
    first, second = StopMatcher(stops), StopMatcher(stops)
    assert first.push("a") == ("", None)
    assert second.push("b") == ("b", None)
    assert first.push("b") == ("", "ab")
