"""An error keeps its class and words across the pipe, whatever its constructor takes."""

import pytest

from octavo import errors
from octavo.errors import ContextLengthExceeded, EngineUnavailable, InvalidRequest, OctavoError, QueueFull
from octavo.service.error_info import describe, revive
from octavo.types import ErrorInfo

_WITH_OWN_CONSTRUCTOR: list[OctavoError] = [
    InvalidRequest("n must be at least 1", param="n", code="out_of_range"),
    ContextLengthExceeded(prompt_tokens=9, context_length=8, max_tokens=2, param="max_tokens"),
    errors.ModelNotFound("gpt-5", "smollm2"),
    QueueFull(7, 7),
]
_KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, OctavoError)]
_PLAIN = [kind("the words") for kind in _KINDS if "__init__" not in vars(kind) and not issubclass(kind, InvalidRequest)]


@pytest.mark.parametrize("error", [*_WITH_OWN_CONSTRUCTOR, *_PLAIN], ids=lambda error: type(error).__name__)
def test_class_and_words_survive(error: OctavoError) -> None:
    revived = revive(describe(error))
    assert type(revived) is type(error)
    assert str(revived) == str(error)
    for name in ("message", "param", "code"):
        assert getattr(revived, name, None) == getattr(error, name, None)
    if isinstance(revived, QueueFull):
        assert revived.retry_after_s > 0


@pytest.mark.parametrize("kind", ["", "NoSuchError", "annotations", "__doc__"])
def test_an_unknown_kind_is_still_a_typed_error(kind: str) -> None:
    revived = revive(ErrorInfo(kind, "the words"))
    assert type(revived) is EngineUnavailable
    assert str(revived) == "the words"
