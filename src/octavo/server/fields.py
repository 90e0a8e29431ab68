"""Request fields that Octavo knows and does not serve, and those that it knows and may ignore. Owns the promise that
nothing which would change an answer is ignored silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from octavo.errors import InvalidRequest

# Field -> values that ask for nothing. Null asks for nothing everywhere.
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        # OpenAI
        "audio": (),
        "best_of": (1,),
        "function_call": ("none", "auto"),
        "functions": ([],),
        "logit_bias": ({},),
        "modalities": (["text"],),
        "prediction": (),
        "response_format": ({"type": "text"},),
        "suffix": ("",),
        "tool_choice": ("none", "auto"),
        "tools": ([],),
        "web_search_options": (),
        # vLLM, SGLang
        "allowed_token_ids": ([],),
        "bad_words": ([],),
        "chat_template": (),
        "documents": ([],),
        "ebnf": (),
        "guided_choice": (),
        "guided_grammar": (),
        "guided_json": (),
        "guided_regex": (),
        "length_penalty": (1,),
        "logits_processors": ([],),
        "min_tokens": (0,),
        "mm_processor_kwargs": ({},),
        "prompt_logprobs": (),
        "regex": (),
        "return_token_ids": (False,),
        "return_tokens_as_token_ids": (False,),
        "skip_special_tokens": (True,),
        "structured_outputs": (),
        "truncate_prompt_tokens": (),
        "use_beam_search": (False,),
        # llama.cpp and others
        "dry_multiplier": (0,),
        "dynatemp_range": (0,),
        "grammar": ("",),
        "json_schema": (),
        "mirostat": (0,),
        "n_probs": (0,),
        "top_a": (0,),
        "tfs_z": (1,),
        "typical_p": (1,),
        "xtc_probability": (0,),
    }
)
UNSUPPORTED_IN_CHAT: Mapping[str, tuple[Any, ...]] = MappingProxyType({**UNSUPPORTED, "echo": (False,)})

# Known fields that change nothing here: labels for the sender's own books, and wishes that cost nothing to skip.
IGNORED = frozenset(
    {
        "cache_control",
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "reasoning_effort",
        "safety_identifier",
        "service_tier",
        "spaces_between_special_tokens",
        "store",
        "user",
        "verbosity",
    }
)


def refuse_unsupported(raw: Mapping[str, msgspec.Raw], unsupported: Mapping[str, tuple[Any, ...]]) -> None:
    """InvalidRequest (code "unsupported") naming the first field that asks for what is not served."""
    for name in raw.keys() & unsupported.keys():
        value = msgspec.json.decode(raw[name])
        if value is not None and value not in unsupported[name]:
            raise InvalidRequest(
                f"{name} is not supported by this server. Leave the field out.", param=name, code="unsupported"
            )
