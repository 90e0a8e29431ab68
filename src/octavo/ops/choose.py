"""Which backend serves a model on this machine: a preference list, asked in order, with every refusal's reason kept.
A new backend adds one row to PREFERENCE. What a backend can do is its own to say (`refuse`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from octavo.errors import ConfigError
from octavo.ops.backend import Backend


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user asked of a backend ("auto" and None leave it the choice), and how many `cores` it may use."""

    dtype: str = "auto"
    threads: int | None = None
    cores: int = 1
    kv_dtype: str = "auto"
    quantize: str | None = None


def _native(wish: Wish) -> Backend:
    from octavo.ops.native.backend import NativeBackend

    return NativeBackend(wish.dtype, wish.threads or wish.cores, kv_dtype=wish.kv_dtype, quantize=wish.quantize)


def _reference(wish: Wish) -> Backend:
    from octavo.ops.reference.backend import ReferenceBackend

    if wish.kv_dtype != "auto":
        raise ConfigError(f"its KV cache has the dtype of its activations, not --kv-dtype {wish.kv_dtype}")
    if wish.quantize is not None:
        raise ConfigError("it keeps all weights dense and knows no --quantize")
    # numpy's BLAS collapses when its threads share cores with others: docs/decisions/009.
    threads = wish.threads or max(1, wish.cores - 1)
    return ReferenceBackend("float32" if wish.dtype == "auto" else wish.dtype, threads)


# name -> constructor, the most preferred first. A constructor raises ConfigError when this machine or that wish is not
# for it; it imports its backend only when called.
Constructor = Callable[[Wish], Backend]
PREFERENCE: tuple[tuple[str, Constructor], ...] = (("native", _native), ("reference", _reference))


def choose_backend(
    name: str = "auto",
    wish: Wish = Wish(),
    formats: frozenset[str] = frozenset(),
    head_dim: int = 64,
    block_size: int = 16,
) -> tuple[Backend, list[str]]:
    """The backend `name`, or with "auto" the first of PREFERENCE that does not refuse; and why others were passed over.

    `formats` are the tensor formats (keys of `quant.formats.FORMATS`), `head_dim` the head size and `block_size` the
    tokens per KV block that it must serve.
    ConfigError, with all reasons, when none will.
    """
    known = [known_name for known_name, _ in PREFERENCE]
    if name != "auto" and name not in known:
        raise ConfigError(f"there is no backend {name!r}; choose auto or one of: {', '.join(known)}")
    reasons: list[str] = []
    for candidate, construct in PREFERENCE:
        if name not in ("auto", candidate):
            continue
        try:
            backend = construct(wish)
        except ConfigError as error:
            reasons.append(f"{candidate}: {error}")
            continue
        reason = backend.refuse(formats, head_dim, block_size)
        if reason is None:
            return backend, reasons
        reasons.append(f"{candidate}: {reason}")
    raise ConfigError(f"no backend can serve this model here: {'; '.join(reasons)}")
