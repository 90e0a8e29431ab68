"""Typed, checked reading of a checkpoint's `config.json` dict, with errors that name the key. Knows no model.

Imports no numpy: the front end reads a model's facts with it before any weight is touched.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from octavo.errors import CheckpointError

MAX_SIZE = 1 << 24  # of any dimension: ten times what exists, and small enough that a hostile file cannot hurt

_REQUIRED: Any = object()


class ConfigKeys:
    """A config dict, or a dict nested in it. A key whose value is null counts as absent.

    Each getter raises CheckpointError naming the key when it is absent without a default, of the wrong type or
    out of range.
    """

    def __init__(self, config: Mapping[str, Any], path: str = "") -> None:
        self._config = config
        self._path = path

    def __contains__(self, key: str) -> bool:
        return self._config.get(key) is not None

    def given(self, key: str) -> bool:
        """The key is written down, be it as null."""
        return key in self._config

    def whole(self, key: str, default: Any = _REQUIRED, *, low: int = 1, high: int = MAX_SIZE) -> Any:
        """A whole number in low .. high; the default, whatever it is, when absent."""
        value = self._get(key, default)
        if value is default and default is not _REQUIRED:
            return value
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self._wrong(key, f"a whole number between {low} and {high}", value)
        return value

    def real(self, key: str, default: Any = _REQUIRED, *, low: float = 0.0) -> Any:
        """A finite number >= low as float; the default, whatever it is, when absent."""
        value = self._get(key, default)
        if value is default and default is not _REQUIRED:
            return value
        if isinstance(value, bool) or not isinstance(value, int | float) or not (low <= value and math.isfinite(value)):
            raise self._wrong(key, f"a finite number >= {low:g}", value)
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def text(self, key: str, default: str) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string", value)
        return value

    def texts(self, key: str) -> list[str]:
        """A list of strings; empty when absent."""
        value = self._get(key, [])
        if not isinstance(value, list) or any(not isinstance(item, str) for item in value):
            raise self._wrong(key, "a list of strings", value)
        return value

    def reals(self, key: str, count: int) -> list[float]:
        """A list of `count` finite numbers above 0."""
        value = self._get(key, _REQUIRED)
        if not isinstance(value, list) or len(value) != count or not all(_positive(item) for item in value):
            raise self._wrong(key, f"a list of {count} positive numbers", value)
        return [float(item) for item in value]

    def section(self, key: str) -> ConfigKeys:
        """The dict nested under `key`; an empty one when absent."""
        value = self._get(key, {})
        if not isinstance(value, Mapping):
            raise self._wrong(key, "an object", value)
        return ConfigKeys(value, self.name(key))

    def name(self, key: str) -> str:
        """The key with the path to it, as messages call it."""
        return f"{self._path}.{key}" if self._path else key

    def _get(self, key: str, default: Any) -> Any:
        value = self._config.get(key)
        if value is None:
            value = default
        if value is _REQUIRED:
            raise CheckpointError(f"the model config lacks the key {self.name(key)!r}")
        return value

    def _wrong(self, key: str, wanted: str, value: object) -> CheckpointError:
        return CheckpointError(f"the model config's {self.name(key)!r} must be {wanted}, got {value!r:.80}")


def _positive(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 < value < math.inf
