"""Stop strings in text that arrives in pieces. Owns finding the first match and holding back what may still become
one; ending the request is the caller's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from octavo.errors import InvalidRequest

MAX_STOP_CHARS = 1024


class StopStrings:
    """The stop strings of a request as an Aho-Corasick automaton (1975), which all its choices share. Its states are
    the beginnings of stop strings, 0 the empty one; a text is in the state of its longest suffix that is one.

    Raises InvalidRequest (param "stop") for an empty stop string or one over MAX_STOP_CHARS characters.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]  # state -> character -> state
        self._fallback = [0]
        self.depth = [0]  # characters of each state
        self.match: list[str | None] = [None]  # the longest stop string that ends in the state
        for stop in stops:
            self._add(stop)
        self._link()

    def step(self, state: int, char: str) -> int:
        """The state after one more character."""
        while (target := self._next[state].get(char)) is None:
            if state == 0:
                return 0
            state = self._fallback[state]
        return target

    def _add(self, stop: str) -> None:
        if not 0 < len(stop) <= MAX_STOP_CHARS:
            raise InvalidRequest(
                f"stop strings must have 1 to {MAX_STOP_CHARS} characters, got {len(stop)}", param="stop"
            )
        state = 0
        for char in stop:
            if char not in self._next[state]:
                self._next[state][char] = len(self._next)
                self._next.append({})
                self.depth.append(self.depth[state] + 1)
                self.match.append(None)
                self._fallback.append(0)
            state = self._next[state][char]
        self.match[state] = stop

    def _link(self) -> None:
        """Fallbacks breadth first: the longest proper suffix of a state that is a state too."""
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            for char, target in self._next[state].items():
                self._fallback[target] = fallback = self.step(self._fallback[state], char)
                self.match[target] = self.match[target] or self.match[fallback]
                queue.append(target)


class StopMatcher:
    """Finds the stop string that is *completed first*; of several completed by the same character, the longest.

    This is the first moment at which a reader of the text could stop, so the answer never depends on how the
    text was cut into pieces, and nothing waits for a longer match that may not come. With one stop string it
    is `str.find`. One dictionary step per character, amortised, for any number of stop strings.
    """

    def __init__(self, stops: StopStrings, *, include: bool = False) -> None:
        self._stops = stops
        self._include = include
        self._state = 0
        self._held = ""  # the text of `_state`, already seen and not yet returned

    def push(self, text: str) -> tuple[str, str | None]:
        """Text that is safe to show, and the stop string if one is now complete (then push no more).

        The matched string itself is in the text only with `include`; what follows it never is.
        """
        seen = self._held + text
        stops = self._stops
        for position, char in enumerate(text, start=len(self._held) + 1):
            self._state = stops.step(self._state, char)
            stop = stops.match[self._state]
            if stop is not None:
                self._state, self._held = 0, ""
                return seen[: position if self._include else position - len(stop)], stop
        safe = len(seen) - stops.depth[self._state]
        self._held = seen[safe:]
        return seen[:safe], None

    def finish(self) -> str:
        """The text still held back: the beginning of a stop string that never came."""
        held, self._held, self._state = self._held, "", 0
        return held
