"""Patience ends after a few deaths in a row, and a token renews it."""

from octavo.service.patience import DEATHS_WHILE_LOADING, DEATHS_WITHOUT_TOKEN, Patience


def test_patience_with_an_engine_that_does_not_load() -> None:
    patience = Patience()
    outcomes = [patience.death(loaded=False) for _ in range(DEATHS_WHILE_LOADING)]
    assert outcomes == [True] * (DEATHS_WHILE_LOADING - 1) + [False]


def test_patience_with_an_engine_that_loads_and_brings_nothing() -> None:
    patience = Patience()
    assert all(patience.death(loaded=True) for _ in range(DEATHS_WITHOUT_TOKEN - 1))
    patience.token()
    outcomes = [patience.death(loaded=True) for _ in range(DEATHS_WITHOUT_TOKEN)]
    assert outcomes == [True] * (DEATHS_WITHOUT_TOKEN - 1) + [False]
