"""SamplingParams refuses what cannot be meant, names the field, and survives the trip over the engine pipe."""

import math
from typing import Any

import msgspec
import pytest

from octavo.errors import InvalidRequest
from octavo.types import Request, SamplingParams

REFUSED: list[tuple[str, Any]] = [
    ("max_tokens", 0),
    ("max_tokens", -1),
    ("max_tokens", 1.5),
    ("max_tokens", True),
    ("temperature", -0.1),
    ("temperature", 2.1),
    ("temperature", math.nan),
    ("temperature", math.inf),
    ("temperature", "hot"),
    ("top_k", -1),
    ("top_k", 2.5),
    ("top_p", 0.0),
    ("top_p", 1.01),
    ("top_p", math.nan),
    ("min_p", -0.01),
    ("min_p", 1.5),
    ("repetition_penalty", 0.0),
    ("repetition_penalty", math.inf),
    ("presence_penalty", -2.5),
    ("frequency_penalty", 2.5),
    ("frequency_penalty", math.nan),
    ("seed", 2**63),
    ("seed", 0.5),
    ("n", 0),
    ("n", 129),
    ("logprobs", -1),
    ("logprobs", 21),
    ("stop", ("",)),
    ("stop", ("a",) * 17),
    ("stop", (7,)),
    ("stop_token_ids", (-1,)),
    ("stop_token_ids", ("a",)),
    ("stop_token_ids", (True,)),
]


@pytest.mark.parametrize(("field", "value"), REFUSED)
def test_each_field_refuses_and_is_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams(**{field: value})
    assert caught.value.param == field
    assert field in str(caught.value)


ACCEPTED: list[tuple[str, Any]] = [
    ("max_tokens", 1),
    ("max_tokens", None),
    ("temperature", 0),
    ("temperature", 2.0),
    ("top_k", 10**9),
    ("top_p", 1e-9),
    ("min_p", 1),
    ("repetition_penalty", 10.0),
    ("presence_penalty", -2.0),
    ("seed", -(2**63)),
    ("seed", 2**63 - 1),
    ("n", 128),
    ("logprobs", 0),
    ("logprobs", 20),
    ("stop", ("a",) * 16),
    ("stop_token_ids", (0, 5)),
]


@pytest.mark.parametrize(("field", "value"), ACCEPTED)
def test_the_edges_of_each_range_are_accepted(field: str, value: Any) -> None:
    assert getattr(SamplingParams(**{field: value}), field) == value


def test_greedy_is_temperature_zero() -> None:
    assert SamplingParams(temperature=0.0).greedy
    assert not SamplingParams(temperature=0.01).greedy


def test_params_are_checked_again_when_they_are_decoded() -> None:
    """A peer that sends what the constructor would refuse gets an error, not an engine with odd parameters."""
    packed = msgspec.msgpack.encode({"temperature": 7.0})
    with pytest.raises((msgspec.ValidationError, InvalidRequest), match="temperature"):
        msgspec.msgpack.decode(packed, type=SamplingParams)


def test_a_request_survives_the_pipe() -> None:
    params = SamplingParams(max_tokens=5, temperature=0.5, stop=("a", "ü"), seed=-3, logprobs=2, n=3)
    request = Request(id="r", prompt=[1, 2], params=params, seed=9, generated=[4], choice=1, salt="s", priority=-2)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=Request) == request
