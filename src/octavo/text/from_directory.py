"""A tokenizer and chat template from a Hugging Face model directory. Owns which file says what; `tokenizer.py` and
`chat_template.py` know nothing of files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from octavo.errors import CheckpointError
from octavo.text.tokenizer import Tokenizer

OTHER_VOCABULARIES = ("tokenizer.model", "vocab.json", "tekken.json", "vocab.txt")
TEMPLATE_FILE = "chat_template.jinja"
TEMPLATE_DIRECTORY = "additional_chat_templates"


@dataclass(frozen=True, slots=True)
class DirectoryText:
    """What the files of a directory say about text. `templates` maps names ("default", "tool_use") to sources."""

    tokenizer: Tokenizer
    templates: dict[str, str]
    bos_token: str
    eos_token: str
    context_length: int | None


def text_from_directory(path: Path) -> DirectoryText:
    """Read tokenizer.json and, where present, tokenizer_config.json, special_tokens_map.json,
    generation_config.json, config.json and the chat template files.

    Raises CheckpointError, naming the file, for one that is missing, not JSON or wrong in a field that matters;
    UnsupportedModel for a tokenizer that is neither byte-level nor SentencePiece.
    """
    engine = _engine(path)
    tokens = SpecialTokens(path)
    config = _read_json(path / "config.json")
    _mark_special(engine, tokens.all())
    bos_token, eos_token = tokens.named("bos_token"), tokens.named("eos_token")
    bos_id, eos_id = (engine.token_to_id(token) if token else None for token in (bos_token, eos_token))
    ends = {
        *_end_ids(path / "generation_config.json", _read_json(path / "generation_config.json")),
        *_end_ids(path / "config.json", config),
        *([eos_id] if eos_id is not None else []),
    }
    return DirectoryText(
        tokenizer=Tokenizer(engine, bos_id=bos_id, eos_ids=ends, source=str(path / "tokenizer.json")),
        templates=_templates(path, tokens.config.get("chat_template")),
        bos_token=bos_token,
        eos_token=eos_token,
        context_length=_context_length(config),
    )


class SpecialTokens:
    """tokenizer_config.json over special_tokens_map.json."""

    ROLES = ("bos_token", "eos_token", "unk_token", "pad_token")
    LISTS = ("additional_special_tokens", "extra_special_tokens")

    def __init__(self, path: Path) -> None:
        self.config = _read_json(path / "tokenizer_config.json")
        self._map = _read_json(path / "special_tokens_map.json")

    def named(self, role: str) -> str:
        """The text of `bos_token` and the like, or ""."""
        return _content(self.config.get(role)) or _content(self._map.get(role))

    def all(self) -> set[str]:
        """Every token that these files call special."""
        found = {self.named(role) for role in self.ROLES}
        for holder in (self.config, self._map):
            for key in self.LISTS:
                items = holder.get(key)
                if isinstance(items, dict):
                    items = list(items.values())
                found |= {_content(item) for item in (items if isinstance(items, list) else [])}
        return found - {""}


def _engine(path: Path) -> tokenizers.Tokenizer:
    file = path / "tokenizer.json"
    if not file.is_file():
        others = [name for name in OTHER_VOCABULARIES if (path / name).is_file()]
        found = f"; {others[0]} is there, but Octavo does not read it" if others else ""
        raise CheckpointError(
            f"{path}: tokenizer.json is missing{found}. Write one with transformers: "
            f"AutoTokenizer.from_pretrained({str(path)!r}).save_pretrained({str(path)!r})."
        )
    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises bare Exception
        raise CheckpointError(f"{file}: not a tokenizer that the tokenizers library can read ({error})") from error


def _mark_special(engine: tokenizers.Tokenizer, names: Iterable[str]) -> None:
    """Make special what is an ordinary piece in tokenizer.json, as transformers does. What tokenizer.json lists as
    an added token keeps its own flag, and no new ids are invented."""
    added = {token.content for token in engine.get_added_tokens_decoder().values()}
    unlisted = [name for name in sorted(names) if name not in added]
    engine.add_special_tokens([name for name in unlisted if engine.token_to_id(name) is not None])


def _end_ids(file: Path, config: dict[str, Any]) -> list[int]:
    value = config.get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if any(isinstance(id_, bool) or not isinstance(id_, int) or id_ < 0 for id_ in ids):
        raise CheckpointError(f"{file}: eos_token_id must be a token id or a list of them, got {value!r:.80}")
    return ids


def _context_length(config: dict[str, Any]) -> int | None:
    nested = config.get("text_config")
    for holder in (config, nested if isinstance(nested, dict) else {}):
        length = holder.get("max_position_embeddings")
        if isinstance(length, int) and length > 0:
            return length
    return None


def _templates(path: Path, declared: object) -> dict[str, str]:
    """Template sources by name. Files beside the tokenizer win over tokenizer_config.json, as in transformers."""
    templates: dict[str, str] = {}
    if isinstance(declared, str):
        templates["default"] = declared
    elif isinstance(declared, list):
        for entry in declared:
            if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("name", "template")):
                raise CheckpointError(
                    f"{path / 'tokenizer_config.json'}: a chat_template list needs entries with name and template"
                )
            templates[entry["name"]] = entry["template"]
    if (path / TEMPLATE_FILE).is_file():
        templates["default"] = _read_text(path / TEMPLATE_FILE)
    for file in sorted((path / TEMPLATE_DIRECTORY).glob("*.jinja")):
        templates[file.stem] = _read_text(file)
    return templates


def _content(token: object) -> str:
    """A token written plainly or as an AddedToken object."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""


def _read_json(file: Path) -> dict[str, Any]:
    """The object in a file; empty when the file is absent."""
    if not file.is_file():
        return {}
    try:
        value = json.loads(_read_text(file))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{file}: must hold a JSON object")
    return value


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file}: cannot be read ({error})") from error
