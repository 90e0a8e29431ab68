"""Choosing a backend: the preference list, and that every refusal says why."""

import pytest

from octavo.errors import ConfigError
from octavo.ops import choose
from octavo.ops.choose import choose_backend
from octavo.ops.reference.backend import ReferenceBackend
from octavo.quant.formats import FORMATS


def test_the_reference_serves_every_known_format() -> None:
    backend, reasons = choose_backend(formats=frozenset(FORMATS))
    assert (backend.name, backend.dtype, reasons) == ("reference", "float32", [])


def test_dtype_is_passed_on() -> None:
    assert choose_backend("reference", "float64")[0].dtype == "float64"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "cuda"}, "no backend 'cuda'; choose auto or one of: reference"),
        ({"dtype": "bfloat16"}, "computes in float32 or float64, not bfloat16"),
        ({"formats": frozenset({"f32", "nf4"})}, "tensor types nf4"),
    ],
)
def test_refusals_name_the_reason(options: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        choose_backend(**options)


def test_an_earlier_backend_that_refuses_is_passed_over_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    class Narrow(ReferenceBackend):
        name = "narrow"

        def refuse(self, formats: frozenset[str], head_dim: int) -> str | None:
            return "head dim 80 is not 64" if head_dim == 80 else None

    def absent(dtype: str, threads: int | None) -> ReferenceBackend:
        raise ConfigError("no such device")

    rows = (("absent", absent), ("narrow", lambda dtype, threads: Narrow()), *choose.PREFERENCE)
    monkeypatch.setattr(choose, "PREFERENCE", rows)
    backend, reasons = choose_backend(head_dim=80)
    assert backend.name == "reference"
    assert reasons == ["absent: no such device", "narrow: head dim 80 is not 64"]
    assert choose_backend(head_dim=64)[0].name == "narrow"
    with pytest.raises(ConfigError, match="head dim 80"):
        choose_backend("narrow", head_dim=80)
