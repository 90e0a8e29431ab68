"""Which backend serves a model on this machine: a preference list, asked in order, with every refusal's reason kept.
A new backend adds one row to PREFERENCE. What a backend can do is its own to say (`refuse`).
"""

from __future__ import annotations

from collections.abc import Callable

from octavo.errors import ConfigError
from octavo.ops.backend import Backend


def _reference(dtype: str, threads: int | None) -> Backend:
    from octavo.ops.reference.backend import ReferenceBackend

    return ReferenceBackend("float32" if dtype == "auto" else dtype, threads)


# name -> constructor, the most preferred first. A constructor takes the wanted dtype ("auto": its own choice) and how
# many threads may compute (None: its own choice), and raises ConfigError when this machine or that dtype is not for it;
# it imports its backend only when called.
Constructor = Callable[[str, int | None], Backend]
PREFERENCE: tuple[tuple[str, Constructor], ...] = (("reference", _reference),)


def choose_backend(
    name: str = "auto",
    dtype: str = "auto",
    threads: int | None = None,
    formats: frozenset[str] = frozenset(),
    head_dim: int = 64,
) -> tuple[Backend, list[str]]:
    """The backend `name`, or with "auto" the first of PREFERENCE that does not refuse; and why others were passed over.

    `formats` are the tensor formats (keys of `quant.formats.FORMATS`) and `head_dim` the head size it must serve.
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
            backend = construct(dtype, threads)
        except ConfigError as error:
            reasons.append(f"{candidate}: {error}")
            continue
        reason = backend.refuse(formats, head_dim)
        if reason is None:
            return backend, reasons
        reasons.append(f"{candidate}: {reason}")
    raise ConfigError(f"no backend can serve this model here: {'; '.join(reasons)}")
