"""Everything the front end needs to know about a model's text, from a directory or a GGUF file. Owns the choice
between the two and the fallback chat template.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.checkpoint.gguf_file import GGUFFile, gguf_in
from octavo.errors import CheckpointError
from octavo.text.chat_template import CHATML, PLAIN, ChatTemplate
from octavo.text.from_directory import text_from_directory
from octavo.text.from_gguf import tokenizer_from_gguf
from octavo.text.tokenizer import Tokenizer

TEMPLATE_KEY = "tokenizer.chat_template"


@dataclass(frozen=True, slots=True)
class ModelText:
    """One model's text. `context_length` is the number of positions it was trained on, None when not stated."""

    tokenizer: Tokenizer
    template: ChatTemplate
    eos_ids: frozenset[int]
    context_length: int | None


def load_text(path: Path) -> ModelText:
    """Read tokenizer and chat template of a model directory (one GGUF file in it will do) or a .gguf file; no weights
    are touched.

    A model without a chat template gets ChatML if its vocabulary has `<|im_start|>`, else plain
    "role: content" paragraphs. Raises CheckpointError or UnsupportedModel as the readers do.
    """
    if path.is_dir():
        gguf = gguf_in(path)
        if gguf is None:
            return _from_directory(path)
        path = gguf
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file or directory")
    with GGUFFile.open(path) as file:
        return _from_gguf(file.metadata, str(path))


def _from_directory(path: Path) -> ModelText:
    if not any((path / name).is_file() for name in ("config.json", "tokenizer.json")):
        raise CheckpointError(
            f"{path}: no model in this directory: it needs config.json, tokenizer.json and safetensors files, or one "
            ".gguf file"
        )
    text = text_from_directory(path)
    return _model_text(text.tokenizer, text.templates, text.bos_token, text.eos_token, text.context_length)


def _from_gguf(metadata: Mapping[str, Any], source: str) -> ModelText:
    tokenizer = tokenizer_from_gguf(metadata, source=source)
    templates = {
        key.removeprefix(TEMPLATE_KEY).removeprefix(".") or "default": value
        for key, value in metadata.items()
        if (key == TEMPLATE_KEY or key.startswith(TEMPLATE_KEY + ".")) and isinstance(value, str)
    }
    bos_token, eos_token = (
        tokenizer.token_bytes(id_).decode(errors="replace") if isinstance(id_, int) else ""
        for id_ in (metadata.get(f"tokenizer.ggml.{role}_token_id") for role in ("bos", "eos"))
    )
    length = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    stated = length if isinstance(length, int) and length > 0 else None
    return _model_text(tokenizer, templates, bos_token, eos_token, stated)


def _model_text(
    tokenizer: Tokenizer,
    templates: Mapping[str, str],
    bos_token: str,
    eos_token: str,
    context_length: int | None,
) -> ModelText:
    usable = {name: source for name, source in templates.items() if source.strip()}
    fallback = CHATML if tokenizer.id_of("<|im_start|>") is not None else PLAIN
    return ModelText(
        tokenizer=tokenizer,
        template=ChatTemplate(usable or fallback, bos_token=bos_token, eos_token=eos_token),
        eos_ids=tokenizer.eos_ids,
        context_length=context_length,
    )
