"""What is decided from options, model and machine: every number has a reason, and errors say what to change."""

from typing import Any

import pytest

from octavo.config import (
    EngineConfig,
    Resolved,
    ServerConfig,
    check_threads,
    format_bytes,
    parse_bytes,
    resolve,
)
from octavo.core.kv_spec import KVSpec, LayerKV
from octavo.errors import ConfigError

GIB = 2**30
# 2 layers x 2 heads x 8 dims x (key, value) x 4 bytes = 256 bytes per token
SPEC = KVSpec((LayerKV(2, 8, 2048),) * 2, block_size=16)


def decide(config: EngineConfig | None = None, **facts: Any) -> Resolved:
    numbers: dict[str, Any] = {
        "spec": SPEC,
        "context_length": 1024,
        "vocab": 100,
        "weight_bytes": GIB,
        "free_bytes": 2 * GIB,
        "backend": "reference",
        "dtype": "float32",
        "threads": 1,
    }
    return resolve(config or EngineConfig(), **(numbers | facts))


def reason(resolved: Resolved, name: str) -> str:
    return next(decision.reason for decision in resolved.decisions if decision.name == name)


def test_a_small_model_gets_what_its_chats_can_use_and_no_more() -> None:
    resolved = decide(EngineConfig(max_running=8))
    assert resolved.blocks == 8 * 1024 // 16
    assert resolved.max_len == 1024
    assert "8 chats of 1024" in reason(resolved, "KV cache")


def test_otherwise_a_quarter_of_what_is_free_beside_the_weights() -> None:
    resolved = decide(context_length=10**6)
    assert resolved.blocks == GIB // 4 // SPEC.bytes_per_block
    assert resolved.kv_bytes <= GIB // 4
    assert "25%" in reason(resolved, "KV cache")


def test_a_context_that_does_not_fit_is_shortened_and_the_plan_says_so() -> None:
    resolved = decide(EngineConfig(kv_memory="64KiB"))
    assert resolved.max_len == resolved.kv_tokens == 256
    assert "raise --kv-memory" in reason(resolved, "context")


def test_asked_for_memory_is_given_exactly() -> None:
    resolved = decide(EngineConfig(kv_memory="1MiB"))
    assert resolved.kv_bytes == 2**20
    assert reason(resolved, "KV cache") == "--kv-memory 1MiB"


def test_a_context_asked_for_is_kept() -> None:
    resolved = decide(EngineConfig(max_len=64))
    assert resolved.max_len == 64
    assert reason(resolved, "context") == "--max-len"


@pytest.mark.parametrize(
    ("config", "facts", "words"),
    [
        ({}, {"free_bytes": GIB // 2}, "the weights need 1.0 GiB and 512.0 MiB of memory are free"),
        ({}, {"free_bytes": GIB}, "the weights need"),
        ({"kv_memory": "3GiB"}, {}, "--kv-memory 3GiB exceeds the 1.0 GiB"),
        ({"kv_memory": "4KiB"}, {}, "raise --kv-memory"),
        ({"max_len": 2048}, {}, "--max-len 2048 exceeds the 1024 tokens"),
        ({}, {"context_length": 1}, "made for 1 tokens; Octavo needs 32"),
        ({}, {"free_bytes": -GIB}, "the buffers of a step need 1.0 GiB more .* --max-running or --chunk"),
    ],
)
def test_what_cannot_work_names_the_numbers(config: dict[str, Any], facts: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        decide(EngineConfig(**config), **facts)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("block_size", 12),
        ("max_running", 0),
        ("chunk", 0),
        ("queue", -1),
        ("max_len", 8),
        ("watermark", 1.0),
        ("watermark", -0.1),
        ("kv_memory", "much"),
        ("threads", 0),
        ("threads", -1),
        ("threads", 100_000),
        ("queue", 10**30),
        ("chunk", 10**30),
        ("max_running", 10**30),
        ("max_len", 10**30),
        ("kv_memory", "9" * 400),
    ],
)
def test_an_option_out_of_range_is_named_as_it_is_typed(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"--{option.replace('_', '-')}|amount of memory"):
        EngineConfig(**{option: value})


def test_threads_are_held_against_the_cores() -> None:
    for cores, threads in ((1, 4), (2, 8), (64, 256), (1, None)):
        check_threads(EngineConfig(threads=threads), cores)
    with pytest.raises(ConfigError, match=r"--threads 5 on 1 usable core\(s\)"):
        check_threads(EngineConfig(threads=5), 1)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("port", -1),
        ("port", 70_000),
        ("drain", -1.0),
        ("drain", float("nan")),
        ("max_body", "x"),
        ("max_body", "9" * 400),
    ],
)
def test_server_options_are_checked_too(option: str, value: Any) -> None:
    with pytest.raises(ConfigError):
        ServerConfig(**{option: value})


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("17", 17), ("1K", 1024), ("1.5GiB", 3 * 2**29), ("2 gb", 2**31), (" 3MiB ", 3 * 2**20), ("1T", 2**40)],
)
def test_amounts_of_memory(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "1 PiB", "1GiB2", "½GiB"])
def test_what_is_no_amount_of_memory(text: str) -> None:
    with pytest.raises(ConfigError, match="amount of memory"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * GIB, "5.0 GiB"), (2**41, "2.0 TiB")]
)
def test_amounts_are_written_for_people(count: int, text: str) -> None:
    assert format_bytes(count) == text
