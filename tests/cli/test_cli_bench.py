"""octavo bench: the real server under load, and decoding in this process, both with a tiny model."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from octavo_process import Octavo
from typer.testing import CliRunner

from octavo.bench.server_process import ServerProcess
from octavo.bench.step import StepTiming
from octavo.cli.main import app
from octavo.errors import BenchError

TinyModel = Callable[[str], Path]
SMALL = ["--kv-memory", "2MiB", "--offline"]


def test_serve_starts_a_server_loads_it_and_ends_it(tiny_model: TinyModel, tmp_path: Path) -> None:
    report_file = tmp_path / "report.json"
    arguments = ["bench", "serve", str(tiny_model("llama")), *SMALL, "--users", "4", "--requests", "2"]
    result = CliRunner().invoke(app, [*arguments, "--json", str(report_file)])
    assert result.exit_code == 0, result.output
    report = json.loads(report_file.read_text())
    assert report["requests"] == 8
    assert report["failed"] == 0
    assert report["output_tokens"] == report["output_tokens_asked"] > 0
    assert report["ttft"]["p50_ms"] > 0
    assert report["inter_token"]["p95_ms"] >= report["inter_token"]["p50_ms"] > 0
    engine = report["engine"]
    assert 0.5 < engine["kv_utilisation"] <= 1
    assert 0 < engine["compute_s"] < report["wall_s"]
    assert engine["preemptions"] == 0
    assert engine["peak_rss_bytes"] > 50 * 2**20
    for words in ("4 users x 2 requests", "tok/s", "computing", "KV utilisation", "peak memory"):
        assert words in result.stdout
    assert not [child for child in psutil.Process().children(recursive=True) if "serve" in child.cmdline()]


def test_serve_against_nobody_is_one_clear_line() -> None:
    result = CliRunner().invoke(app, ["bench", "serve", "--base-url", "http://127.0.0.1:9"])
    assert result.exit_code == 1
    assert "does not answer" in result.stderr
    assert "Traceback" not in result.output


def test_a_server_that_does_not_start_is_quoted() -> None:
    with pytest.raises(BenchError, match="no-such-model"), ServerProcess(["no-such-model", "--offline"]):
        pass


def test_decode_measures_each_number_of_users(tiny_model: TinyModel, tmp_path: Path) -> None:
    report_file = tmp_path / "decode.json"
    sizes = ["--users", "1,3", "--prompt", "20", "--output", "8", "--json", str(report_file)]
    result = CliRunner().invoke(app, ["bench", "decode", str(tiny_model("llama")), *SMALL, *sizes])
    assert result.exit_code == 0, result.output
    runs = json.loads(report_file.read_text())["runs"]
    assert [run["users"] for run in runs] == [1, 3]
    for run in runs:
        assert run["decode_tok_s"] == pytest.approx(run["users"] / run["step_ms"] * 1e3, rel=0.2)


@pytest.mark.parametrize("users", ["", "0", "1,x", "-3"])
def test_decode_refuses_senseless_users(users: str) -> None:
    result = CliRunner().invoke(app, ["bench", "decode", "--users", users])
    assert result.exit_code == 2
    assert "whole numbers" in result.output


def test_step_shows_times_beside_the_budget(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    timing = {"plan_ms": 0.1, "commit_ms": 0.2, "budget_ms": 0.35}
    within, over = (StepTiming(rows=rows, step_ms=ms, **timing) for rows, ms in ((8, 0.3), (64, 0.4)))
    monkeypatch.setattr("octavo.bench.step.bench_step", lambda: [within])
    result = CliRunner().invoke(app, ["bench", "step", "--json", str(tmp_path / "step.json")])
    assert result.exit_code == 0
    assert "0.350" in result.stdout
    assert json.loads((tmp_path / "step.json").read_text())[0]["rows"] == 8
    monkeypatch.setattr("octavo.bench.step.bench_step", lambda: [within, over])
    result = CliRunner().invoke(app, ["bench", "step"])
    assert result.exit_code == 1
    assert "over" in result.stdout


def test_a_terminated_measurement_leaves_no_server(tiny_model: TinyModel, octavo: Octavo) -> None:
    process = octavo("bench", "serve", tiny_model("llama"), *SMALL, "--users", "1", "--requests", "10000")
    deadline = time.monotonic() + 60
    while not (started := psutil.Process(process.pid).children(recursive=True)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 130
    _, alive = psutil.wait_procs(started, timeout=10)
    assert not alive


def test_start_tells_how_long_and_how_idle(tiny_model: TinyModel, tmp_path: Path) -> None:
    """With two native threads: a team that has nothing to do must sleep."""
    report_file = tmp_path / "start.json"
    arguments = ["bench", "start", str(tiny_model("llama")), *SMALL, "--backend", "native", "--threads", "2"]
    arguments += ["--runs", "1", "--idle", "3"]
    result = CliRunner().invoke(app, [*arguments, "--json", str(report_file)])
    assert result.exit_code == 0, result.output
    figures = json.loads(report_file.read_text())
    assert 0 < figures["address_s"] < figures["first_token_s"] < 20
    assert figures["peak_rss_bytes"] > 50 * 2**20
    assert figures["idle_cpu"] < 0.01
    assert "to the first token" in result.stdout


@pytest.mark.parametrize("command", [["step"], ["decode"], ["perplexity"], ["start"], ["serve"], ["compare"]])
def test_a_file_that_cannot_be_written_is_told_before_the_measurement(command: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", *command, "--json", str(tmp_path / "absent" / "report.json")])
    assert result.exit_code == 2
    assert "there is no directory" in result.output


@pytest.mark.parametrize("option", ["--markdown", "--plot"])
def test_the_other_files_of_a_comparison_too(option: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "compare", option, str(tmp_path / "absent" / "report")])
    assert result.exit_code == 2
    assert "there is no directory" in result.output
