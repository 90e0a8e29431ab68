"""Octavo: a paged-KV serving engine. Public names are loaded on first use, so `import octavo` stays light."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["LLM", "EngineConfig", "SamplingParams", "__version__"]

if TYPE_CHECKING:
    from octavo.config import EngineConfig
    from octavo.llm import LLM
    from octavo.types import SamplingParams

_HOME = {"LLM": "octavo.llm", "EngineConfig": "octavo.config", "SamplingParams": "octavo.types"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'octavo' has no attribute {name!r}")
