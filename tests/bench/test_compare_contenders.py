"""Our own contenders answering jobs: Octavo in process and over HTTP on a tiny model, llama-server as a stub."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from octavo.bench.compare import llama_server
from octavo.bench.compare.own import OwnContender
from octavo.bench.compare.peers.inputs import DecodeWindow, draw_chats, draw_prompts
from octavo.bench.compare.peers.job_loop import CannotRun

TinyModel = Callable[[str], Path]
LENGTHS = [[(20, 6), (24, 3)], [(16, 8), (30, 5)], [(22, 2), (18, 4)]]


def job(model: Path, kind: str = "generate", **fields: Any) -> dict[str, Any]:
    sizes = {"users": 3, "prompt_tokens": 40, "output_tokens": 10}
    settings = {"chunk": 64, "kv": "int8"}
    shared = {"kind": kind, "model": str(model), "threads": 1, "seed": 1, "vocab": 90, "keep_prompts": False}
    return {**shared, **sizes, "settings": settings, "options": {"offline": True, "debug": True}, **fields}


def test_prompts_are_drawn_from_the_seed() -> None:
    asked = {"seed": 3, "vocab": 50, "users": 4, "prompt_tokens": 9, "lengths": LENGTHS}
    prompts = draw_prompts(asked)
    assert prompts == draw_prompts(asked) != draw_prompts({**asked, "seed": 4})
    assert [len(prompt) for prompt in prompts] == [9] * 4
    assert 0 <= min(map(min, prompts)) <= max(map(max, prompts)) < 50
    assert [[(len(prompt), output) for prompt, output in own] for own in draw_chats(asked)] == LENGTHS


def test_decoding_is_counted_while_all_write_and_no_longer() -> None:
    window = DecodeWindow(prompt_tokens=80, steps=2, began=10.0)
    window.note([1, 0], 11.0)
    window.note([2, 1], 12.0)  # both have been read: two seconds for 80 tokens
    window.note([2, 1], 12.5)  # a step that wrote nothing is no decode step
    window.note([3, 2], 13.0)
    assert window.open
    window.note([4, 3], 13.5)
    assert not window.open
    assert window.figures() == {"prefill_tokens": 80, "prefill_s": 2.0, "decode_tokens": 4, "decode_s": 1.5}


def test_octavo_counts_steps_in_which_everybody_writes(tiny_model: TinyModel) -> None:
    own = OwnContender()
    for _ in range(2):  # nothing of the first job is left in the engine
        result = own.run(job(tiny_model("llama")))
        assert (result["figures"]["prefill_tokens"], result["figures"]["decode_tokens"]) == (120, 27)
        assert result["figures"]["decode_s"] > 0
        assert result["settings"]["threads"] == 1
    kept = own.run(job(tiny_model("llama"), keep_prompts=True))
    again = own.run(job(tiny_model("llama"), keep_prompts=True))
    assert kept["figures"]["decode_tokens"] == again["figures"]["decode_tokens"] == 27


def test_octavo_refuses_what_it_does_not_know(tiny_model: TinyModel) -> None:
    with pytest.raises(CannotRun, match="octavo has no quantize"):
        OwnContender().run(job(tiny_model("llama"), kind="quantize"))


def test_octavo_answers_chats_over_http(tiny_model: TinyModel) -> None:
    result = OwnContender().run(job(tiny_model("llama"), kind="chats", lengths=LENGTHS))
    assert result["figures"]["output_tokens"] == 28
    assert result["figures"]["wall_s"] > 0
    assert not [child for child in psutil.Process().children(recursive=True) if "serve" in child.cmdline()]


@pytest.fixture
def program(tmp_path: Path) -> str:
    script = tmp_path / "llama-server"
    fake = Path(__file__).parent / "fake_llama_server.py"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {fake} "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_llama_server_answers_the_same_chats(program: str, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.touch()
    result = llama_server.run(program, job(model, kind="chats", lengths=LENGTHS))
    assert result["figures"]["output_tokens"] == 28
    assert result["versions"] == {"llama-server": "42 (fake)"}


def test_a_llama_server_that_does_not_come_up_is_no_contender(program: str, tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=r"llama-server did not come up \(exit code 1\)"):
        llama_server.run(program, job(tmp_path / "absent.gguf", kind="chats", lengths=LENGTHS))
