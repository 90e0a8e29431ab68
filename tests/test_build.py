"""build_engine: what it decides, what it holds in memory afterwards, and every way in which it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from transformers import AutoModelForCausalLM

from octavo import build
from octavo.build import build_engine
from octavo.config import EngineConfig
from octavo.errors import CheckpointError, ConfigError, UnsupportedModel
from octavo.ops.native import library
from octavo.types import Request, SamplingParams
from tiny_models import EOS, VOCABULARY

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

SMALL = {"kv_memory": "4MiB", "max_running": 8, "debug": True}


def _order(path: Path, **options: Any) -> dict[str, Any]:
    """As it comes over the pipe: packed and unpacked."""
    config = EngineConfig(model=str(path), **(SMALL | options))
    order = {"config": msgspec.to_builtins(config), "path": str(path), "eos_ids": [EOS]}
    return msgspec.msgpack.decode(msgspec.msgpack.encode(order))


def _silent(label: str, done: int, total: int) -> None:
    pass


def _mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


def test_an_engine_that_answers(tiny_model: Callable[[str], Path]) -> None:
    path = tiny_model("llama")
    engine, resolved = build_engine(_order(path, backend="reference"), _silent)
    engine.add(Request(id="a", prompt=[1, 2, 3], params=SamplingParams(temperature=0.0, max_tokens=9), seed=0))
    tokens: list[int] = []
    while not engine.idle:
        tokens += [token for output in engine.step() for token in output.tokens]
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    with torch.no_grad():
        choices = model(torch.tensor([[1, 2, 3, *tokens]])).logits[0].argmax(dim=-1)[2:-1]
    assert tokens == choices.tolist()
    assert (resolved.vocab, resolved.max_len, resolved.backend) == (VOCABULARY, 256, "reference")
    assert engine.scheduler.pool.total == resolved.blocks
    assert resolved.kv_bytes <= 4 * 2**20 < resolved.kv_bytes + resolved.block_size * resolved.bytes_per_token


@pytest.mark.parametrize("name", ["llama", "smollm2"])  # with a head of its own, and with a tied one
@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("float64", 8)])
def test_weight_bytes_are_what_the_backend_holds(
    tiny_model: Callable[[str], Path], name: str, dtype: str, size: int
) -> None:
    path = tiny_model(name)
    _, resolved = build_engine(_order(path, dtype=dtype), _silent)
    assert resolved.weight_bytes == AutoModelForCausalLM.from_pretrained(path).num_parameters() * size
    assert resolved.dtype == dtype


def test_the_checkpoint_is_unmapped(tiny_model: Callable[[str], Path]) -> None:
    path = tiny_model("mistral")
    seen: list[bool] = []
    engine, _ = build_engine(_order(path), lambda label, done, total: seen.append(_mapped(path)))
    assert all(seen), "the file is not mapped while it is read: this test proves nothing"
    assert not _mapped(path)
    assert engine.idle


def test_progress_ends_at_the_whole(tiny_model: Callable[[str], Path]) -> None:
    reports: list[tuple[str, int, int]] = []
    build_engine(_order(tiny_model("qwen3")), lambda *report: reports.append(report))
    done = [done for _, done, _ in reports]
    assert done == sorted(done)
    assert len(set(done)) > 5
    assert reports[-1][1] == reports[-1][2]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"config": {"block_size": 7}}, "block_size|block-size"),
        ({"config": {"nonsense": 1}}, "nonsense"),
        ({"config": {"chunk": "many"}}, "chunk"),
        ({"config": {"kv_memory": "lots"}}, "lots"),
        ({"config": {"kv_memory": "900TiB"}}, "900TiB"),
        ({"config": {"kv_memory": "100"}}, "kv-memory"),
        ({"config": {"max_len": 4096}}, "256"),
        ({"config": {"backend": "abacus"}}, "abacus"),
        ({"config": {"dtype": "int3"}}, "int3"),
        ({"eos_ids": "all"}, "eos_ids"),
    ],
)
def test_options_that_cannot_work(tiny_model: Callable[[str], Path], change: dict[str, Any], words: str) -> None:
    path = tiny_model("llama")
    with pytest.raises(ConfigError, match=words):
        build_engine(_order(path) | change, _silent)
    assert not _mapped(path)


def test_threads_out_of_all_proportion(tiny_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "usable_cores", lambda: 2)
    with pytest.raises(ConfigError, match=r"--threads 9 on 2 usable core\(s\).*limit here is 8"):
        build_engine(_order(tiny_model("llama"), threads=9), _silent)


@pytest.fixture
def no_native_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As after an installation without a compiler."""
    monkeypatch.setattr(library, "library_path", lambda: tmp_path / library.NAME)
    library.load_library.cache_clear()
    yield
    library.load_library.cache_clear()


@pytest.mark.usefixtures("no_native_library")
def test_without_the_native_library_the_reference_serves_and_says_so(
    tiny_model: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    _, resolved = build_engine(_order(tiny_model("llama")), _silent)
    assert resolved.backend == "reference"
    (warning,) = (record for record in caplog.records if record.name == "octavo.build")
    assert warning.levelname == "WARNING"
    for words in ("the reference backend serves", "liboctavo.so is not part of this installation", "apt install g++"):
        assert words in warning.getMessage()
    assert any(decision.name == "passed over" and decision.value == "native" for decision in resolved.decisions)


@pytest.mark.usefixtures("no_native_library")
def test_without_the_native_library_the_native_backend_is_refused(tiny_model: Callable[[str], Path]) -> None:
    with pytest.raises(ConfigError, match="no C\\+\\+20 compiler worked when it was made"):
        build_engine(_order(tiny_model("llama"), backend="native"), _silent)


def test_no_room_for_the_weights(tiny_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "free_memory", lambda: 800_000)
    with pytest.raises(ConfigError, match="the weights need"):
        build_engine(_order(tiny_model("llama")), _silent)


def test_memory_that_runs_out_while_loading(tiny_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else took it meanwhile. The message holds the numbers, and the file is let go."""

    def allocate_kv(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(build, "allocate_kv", allocate_kv)
    path = tiny_model("llama")
    with pytest.raises(ConfigError, match=r"weights, 4\.0 MiB of KV cache"):
        build_engine(_order(path), _silent)
    assert not _mapped(path)


def test_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="absent"):
        build_engine(_order(tmp_path / "absent.gguf"), _silent)


def test_an_architecture_that_is_not_served(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    for file in tiny_model("mistral").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "mamba", "architectures": ["MambaForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match="mamba"):
        build_engine(_order(tmp_path), _silent)


PEAK = """
import re, sys
import numpy, gguf, octavo.build
def peak(): return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
before = peak()
order = {"config": {"kv_memory": "1GiB", "backend": sys.argv[2]}, "path": sys.argv[1], "eos_ids": []}
engine, resolved = octavo.build.build_engine(order, lambda *report: None)
print(resolved.weight_bytes, peak() - before)
"""


# Packed Q4_1 and Q8_0 take what they took in the file; the vectors' float32 is the rest of it.
@pytest.mark.parametrize(("backend", "weights"), [("reference", 134_515_008 * 4), ("native", 96_576_768)])
def test_smollm2_is_never_in_memory_twice(smollm2_path: Path, backend: str, weights: int) -> None:
    """The peak is the packed weights and, until they are dropped, the pages of the file that they were read from.
    The KV cache of 1 GiB costs nothing before it is used."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(smollm2_path), backend],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    weight_bytes, peak = map(int, done.stdout.split())
    assert weight_bytes == weights
    assert weight_bytes < peak < weight_bytes + smollm2_path.stat().st_size + 64e6
