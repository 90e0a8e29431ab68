"""The gold model and the fake model: what they depend on, and what not."""

from __future__ import annotations

from collections import Counter

import pytest

from octavo.sim.lone import lone_run
from octavo.sim.model import SLOT_BYTES, Context, FakeModel
from octavo.types import FinishReason, Request, SamplingParams


def request(prompt: list[int], **fields: object) -> Request:
    params = SamplingParams(**{"temperature": 1.0, "max_tokens": 30, **fields.pop("params", {})})  # type: ignore[dict-item]
    return Request(**{"id": "x", "prompt": prompt, "params": params, "seed": 1, **fields})  # type: ignore[arg-type]


MODEL = FakeModel(vocab=1000)


def tokens(asked: Request, choice: int = 0) -> list[int]:
    return lone_run(asked, MODEL, max_len=500, choice=choice).tokens


def test_sampled_tokens_depend_on_prompt_seed_and_choice() -> None:
    base = tokens(request([1, 2, 3]))
    assert base == tokens(request([1, 2, 3]))
    others = [
        tokens(request([2, 1, 3])),
        tokens(request([1, 2, 3], seed=2)),
        tokens(request([1, 2, 3]), choice=1),
    ]
    assert all(other != base for other in others)
    assert tokens(request([1, 2, 3], choice=1)) == others[2], "choices are numbered from Request.choice on"


def test_greedy_tokens_depend_on_the_prompt_alone() -> None:
    greedy = {"temperature": 0.0}
    base = tokens(request([1, 2, 3], params=greedy))
    assert base == tokens(request([1, 2, 3], params=greedy, seed=2), choice=1)
    assert base != tokens(request([1, 2, 4], params=greedy))


@pytest.mark.parametrize("delivered", [1, 15, 29])
def test_generated_tokens_continue_the_same_run(delivered: int) -> None:
    whole = tokens(request([1, 2, 3]))
    assert tokens(request([1, 2, 3], generated=whole[:delivered])) == whole[delivered:]


def test_ends() -> None:
    always_eos = FakeModel(vocab=1000, eos_id=7, eos_rate=1.0)
    asked = request([1, 2, 3])
    assert lone_run(asked, MODEL, max_len=500).finish is FinishReason.LENGTH
    assert len(lone_run(request([1] * 10, params={"max_tokens": None}), MODEL, max_len=25).tokens) == 15
    stopped = lone_run(asked, always_eos, max_len=500, eos_ids=[7])
    assert (stopped.tokens, stopped.finish, stopped.stop_token) == ([], FinishReason.STOP, 7)
    ignoring = request([1, 2, 3], params={"ignore_eos": True})
    assert lone_run(ignoring, always_eos, max_len=500, eos_ids=[7]).tokens == [7] * 30


def test_every_slot_before_matters() -> None:
    def next_after(slots: list[bytes]) -> int:
        context = Context()
        for slot in slots:
            context.read(slot)
        return context.noise(9)

    slots = [bytes([i]) * SLOT_BYTES for i in range(5)]
    base = next_after(slots)
    for index in range(5):
        changed = list(slots)
        changed[index] = b"\x99" * SLOT_BYTES
        assert next_after(changed) != base
    assert next_after([slots[1], slots[0], *slots[2:]]) != base
    assert next_after(slots[:-1]) != base


def test_reading_in_pieces_is_reading_at_once() -> None:
    at_once, in_pieces = Context(), Context()
    at_once.read(bytes(range(48)))
    in_pieces.read(bytes(range(16)))
    in_pieces.read(memoryview(bytes(range(16, 48))))
    assert at_once.slot(3, 4) == in_pieces.slot(3, 4)


def test_the_end_comes_as_often_as_asked() -> None:
    model = FakeModel(vocab=4, eos_id=2, eos_rate=0.25)
    drawn: Counter[int] = Counter()
    for position in range(4000):
        drawn[model.next_token(Context(), SamplingParams(), 0, 0, position)] += 1
    assert set(drawn) == {0, 1, 2, 3}
    assert drawn[2] / 4000 == pytest.approx(0.25, abs=0.03)
    never = FakeModel(vocab=4, eos_id=2)
    assert 2 not in {never.next_token(Context(), SamplingParams(), 0, 0, position) for position in range(500)}


def test_logprobs_list_the_chosen_token_first() -> None:
    entry = MODEL.logprob(999, 3)
    assert entry.top[0] == (entry.token, entry.logprob) == (999, -0.5)
    assert [token for token, _ in entry.top] == [999, 0, 1]
