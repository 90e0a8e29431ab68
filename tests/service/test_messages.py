"""Every message comes out of msgpack as it went in."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.service.messages import FromEngine, ToEngine
from octavo.types import MAX_TOP_LOGPROBS, FinishReason, Request, SamplingParams

_WHOLE = st.integers(-(2**63), 2**63 - 1)
_COUNT = st.integers(0, 2**40)
_REAL = st.floats(allow_nan=False, allow_infinity=False)
_TEXT = st.text(max_size=8)

_PARAMS = st.builds(
    SamplingParams,
    max_tokens=st.none() | st.integers(1, 10**6),
    temperature=st.floats(0, 2),
    top_k=st.integers(0, 10**6),
    top_p=st.floats(0.01, 1),
    min_p=st.floats(0, 1),
    repetition_penalty=st.floats(0.1, 10),
    presence_penalty=st.floats(-2, 2),
    frequency_penalty=st.floats(-2, 2),
    seed=st.none() | _WHOLE,
    n=st.integers(1, 128),
    stop=st.lists(st.text(min_size=1, max_size=8), max_size=4).map(tuple),
    stop_token_ids=st.lists(_COUNT, max_size=4).map(tuple),
    include_stop_str_in_output=st.booleans(),
    ignore_eos=st.booleans(),
    logprobs=st.none() | st.integers(0, MAX_TOP_LOGPROBS),
)
_REQUESTS = st.builds(
    Request,
    id=_TEXT,
    prompt=st.lists(_COUNT, max_size=8),
    params=_PARAMS,
    seed=_WHOLE,
    generated=st.lists(_COUNT, max_size=8),
    choice=_COUNT,
    salt=_TEXT,
    priority=_WHOLE,
)


def _strategy(kind: object) -> st.SearchStrategy[object]:
    """Values of a struct by the types of its fields, so that a field added later is covered."""
    known = {int: _WHOLE, float: _REAL, str: _TEXT, bool: st.booleans(), FinishReason: st.sampled_from(FinishReason)}
    if kind is Request:
        return _REQUESTS
    if kind in known:
        return known[kind]  # type: ignore[index]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = msgspec.structs.fields(kind)
        return st.builds(kind, **{field.name: _strategy(field.type) for field in fields})
    origin, arguments = getattr(kind, "__origin__", None), getattr(kind, "__args__", ())
    if origin is list:
        return st.lists(_strategy(arguments[0]), max_size=3)
    if origin is tuple:
        return st.tuples(*map(_strategy, arguments))
    if origin is dict:
        return st.dictionaries(_TEXT, _WHOLE | _TEXT | st.none(), max_size=3)
    assert arguments, f"no values are known for {kind}"
    return st.one_of(*(st.none() if a is type(None) else _strategy(a) for a in arguments))


@settings(deadline=None)
@given(_strategy(ToEngine))
def test_messages_to_the_engine(message: ToEngine) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=ToEngine) == message


@settings(deadline=None)
@given(_strategy(FromEngine))
def test_messages_from_the_engine(message: FromEngine) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=FromEngine) == message
