"""Patience: how many deaths of its engine a client bears. Numbers only; which request is to blame is blame.py's."""

from __future__ import annotations

from dataclasses import dataclass

# An engine that cannot even load fails for everybody, and each try may take minutes.
DEATHS_WHILE_LOADING = 3
# More than a few requests that kill engines, one after another, can explain: something else is broken.
DEATHS_WITHOUT_TOKEN = 12


@dataclass(slots=True)
class Patience:
    """Counts deaths in a row."""

    while_loading: int = 0
    without_token: int = 0

    def death(self, *, loaded: bool) -> bool:
        """Note a death. False when another engine should not be tried."""
        self.while_loading = 0 if loaded else self.while_loading + 1
        self.without_token += 1
        return self.while_loading < DEATHS_WHILE_LOADING and self.without_token < DEATHS_WITHOUT_TOKEN

    def token(self) -> None:
        """The engine works."""
        self.without_token = 0
