"""Which model class runs a checkpoint, by the `architectures` or `model_type` of its config. Adding a model adds a row.

Imports no numpy until a model class is asked for, so that the front end can read facts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from octavo.errors import UnsupportedModel
from octavo.layers.config_keys import ConfigKeys
from octavo.models.llama_config import LlamaConfig
from octavo.models.model import Model, ModelFacts


def _llama() -> type[Model]:
    from octavo.models.llama import Llama

    return Llama


@dataclass(frozen=True, slots=True)
class Family:
    """`model_type` and the architecture that generates text, its config class, and its model class on demand."""

    model_type: str
    architecture: str
    config: type[LlamaConfig]
    model: Callable[[], type[Model]]


FAMILIES = (
    Family("llama", "LlamaForCausalLM", LlamaConfig, _llama),
    Family("mistral", "MistralForCausalLM", LlamaConfig, _llama),
    Family("qwen2", "Qwen2ForCausalLM", LlamaConfig, _llama),
    Family("qwen3", "Qwen3ForCausalLM", LlamaConfig, _llama),
)


def family_of(config: Mapping[str, Any]) -> Family:
    """The family of a config. UnsupportedModel, listing what there is, for an unknown or quantised one."""
    keys = ConfigKeys(config)
    if "quantization_config" in keys:
        method = keys.section("quantization_config").text("quant_method", "unknown")
        raise UnsupportedModel(
            f"safetensors quantised with {method!r} (quantization_config) are not supported; use a GGUF file"
        )
    model_type, architectures = keys.text("model_type", ""), keys.texts("architectures")
    for family in FAMILIES:
        if family.model_type == model_type and (not architectures or family.architecture in architectures):
            return family
    supported = ", ".join(f"{family.architecture} ({family.model_type})" for family in FAMILIES)
    raise UnsupportedModel(
        f"model_type {model_type!r} with architectures {architectures} is not supported; supported: {supported}"
    )


def model_facts(config: Mapping[str, Any]) -> ModelFacts:
    """Sizes for the memory plan. CheckpointError or UnsupportedModel when the config will not do."""
    return family_of(config).config.from_hf(config).facts


def model_class(config: Mapping[str, Any]) -> type[Model]:
    """The class to `load` a checkpoint of this config with. UnsupportedModel when there is none."""
    return family_of(config).model()
