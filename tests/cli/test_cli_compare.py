"""octavo bench compare: the whole command on a tiny model, with one peer that breaks and one that is not there."""

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from octavo.bench.compare import find
from octavo.bench.compare.workloads import SWEEP
from octavo.cli.main import app

TinyModel = Callable[[str], Path]
OPTIONS = ["--quick", "--rounds", "1", "--threads", "1", "--kv-memory", "2MiB", "--offline"]


@pytest.fixture
def broken_llama_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp is found, and its adapter prints its log where the answer belongs."""
    (tmp_path / "adapter.py").write_text("input()\nprint('ggml: warming up')\ninput()\n")
    monkeypatch.setattr(find, "PACKAGES", {**find.PACKAGES, "llama.cpp": (("json",), str(tmp_path / "adapter.py"))})


@pytest.mark.usefixtures("broken_llama_cpp")
def test_octavo_is_measured_whatever_its_peers_do(tiny_model: TinyModel, tmp_path: Path) -> None:
    files = {name: tmp_path / f"out.{name}" for name in ("markdown", "json")}
    arguments = ["bench", "compare", str(tiny_model("llama")), *OPTIONS, "--row", "single", "--row", "users-2"]
    arguments += ["--only", "llama.cpp", "--only", "llama-server", "--scratch", str(tmp_path / "scratch")]
    for name, path in files.items():
        arguments += [f"--{name}", str(path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "single-stream decode, the same file" in result.stdout
    assert "printed something that is no result: 'ggml: warming up'" in result.stdout
    assert "these figures say nothing about speed" in result.stdout
    assert "single: octavo (as given, chunk 512):" in result.stderr
    page = files["markdown"].read_text()
    assert page.count("\n| ") == 3
    report = json.loads(files["json"].read_text())
    own = [one for row in report["rows"] for one in row["series"] if one["contender"] == "octavo"]
    assert [len(one["rates"]) for one in own] == [1, 1, 1]  # users-2 with both kinds of cache
    assert all(one["rates"][0] > 0 and one["versions"]["octavo"] for one in own)


def test_the_sweep_is_drawn(tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.bench.compare.compare.SWEEP", SWEEP[:2])
    plot = tmp_path / "users.svg"
    arguments = ["bench", "compare", str(tiny_model("llama")), *OPTIONS, "--only", "llama-server", "--plot", str(plot)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert len(ElementTree.parse(plot).getroot().findall("{http://www.w3.org/2000/svg}circle")) == 2


def test_wrong_names_are_one_clear_line() -> None:
    for arguments, words in (
        (["--row", "nonsense"], "there is no row 'nonsense'; rows are single, single-any"),
        (["--peer", "vllm=/bin/sh"], "--peer takes NAME=PATH"),
        (["--only", "vllm"], "there is no peer 'vllm'"),
    ):
        result = CliRunner().invoke(app, ["bench", "compare", *arguments])
        assert result.exit_code == 1
        assert words in result.stderr
        assert "Traceback" not in result.output
