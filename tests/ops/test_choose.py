"""Choosing a backend: the preference list, and that every refusal says why."""

import pytest

from octavo.errors import ConfigError
from octavo.ops import choose
from octavo.ops.choose import Wish, choose_backend
from octavo.ops.reference.backend import ReferenceBackend
from octavo.quant.formats import FORMATS


def test_the_reference_serves_every_known_format() -> None:
    backend, reasons = choose_backend("reference", formats=frozenset(FORMATS))
    assert (backend.name, backend.dtype, reasons) == ("reference", "float32", [])


def test_the_reference_leaves_a_core_to_the_clients() -> None:
    """numpy's BLAS collapses when its threads share cores."""
    assert [choose_backend("reference", Wish(cores=cores))[0].threads for cores in (1, 2, 8)] == [1, 1, 7]
    assert choose_backend("reference", Wish(threads=8, cores=2))[0].threads == 8


def test_dtype_is_passed_on() -> None:
    assert choose_backend("reference", Wish("float64"))[0].dtype == "float64"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "cuda"}, "no backend 'cuda'; choose auto or one of: native, reference"),
        ({"name": "reference", "wish": Wish("bfloat16")}, "computes in float32 or float64, not bfloat16"),
        ({"name": "reference", "wish": Wish(kv_dtype="int8")}, "not --kv-dtype int8"),
        ({"name": "reference", "wish": Wish(quantize="q4")}, "knows no --quantize"),
        ({"formats": frozenset({"f32", "nf4"})}, "tensor types nf4"),
    ],
)
def test_refusals_name_the_reason(options: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        choose_backend(**options)


def test_an_earlier_backend_that_refuses_is_passed_over_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    class Narrow(ReferenceBackend):
        name = "narrow"

        def refuse(self, formats: frozenset[str], head_dim: int, block_size: int) -> str | None:
            return "head dim 80 is not 64" if head_dim == 80 else None

    def absent(wish: Wish) -> ReferenceBackend:
        raise ConfigError("no such device")

    rows = (("absent", absent), ("narrow", lambda wish: Narrow()), choose.PREFERENCE[-1])
    monkeypatch.setattr(choose, "PREFERENCE", rows)
    backend, reasons = choose_backend(head_dim=80)
    assert backend.name == "reference"
    assert reasons == ["absent: no such device", "narrow: head dim 80 is not 64"]
    assert choose_backend(head_dim=64)[0].name == "narrow"
    with pytest.raises(ConfigError, match="head dim 80"):
        choose_backend("narrow", head_dim=80)
