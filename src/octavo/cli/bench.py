"""`octavo bench step|decode|perplexity|start|serve|compare`: what they show, and say as JSON. `bench/` measures."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from octavo.cli.compare import compare
from octavo.cli.console import JsonFile, counted_progress, diagnostics, output, plain_table, print_table, write_json
from octavo.cli.options import arguments_of, configured
from octavo.config import EngineConfig, format_bytes
from octavo.progress import LoadBar

if TYPE_CHECKING:
    from rich.table import Table

    from octavo.bench.exchange import Exchange
    from octavo.bench.report import LoadReport, Spread
    from octavo.config import Resolved
    from octavo.core.engine import Engine

app = typer.Typer(
    help="Measure the scheduler, decoding, accuracy, a server's start, its load, or other engines beside Octavo.",
    no_args_is_help=True,
)
app.command("compare")(compare)

Seed = Annotated[int, typer.Option(help="Seed of the random prompts.")]
DECODE_USERS = "1,4,8,23"


@app.command()
def step(json: JsonFile = None) -> None:
    """Measure what the scheduler's decisions cost in each step, without a model; exit code 1 above the budget."""
    from octavo.bench.step import bench_step

    with diagnostics().status("measuring"):
        timings = bench_step()
    table = plain_table("sequences", "plan ms", "commit ms", "both ms", "budget ms", "")
    for timing in timings:
        times = (timing.plan_ms, timing.commit_ms, timing.step_ms, timing.budget_ms)
        verdict = "[green]ok[/]" if timing.step_ms <= timing.budget_ms else "[red]over[/]"
        table.add_row(str(timing.rows), *(f"{time:.3f}" for time in times), verdict)
    print_table("Planning and committing one all-decode step, medians", table)
    _write_json(json, timings)
    if any(timing.step_ms > timing.budget_ms for timing in timings):
        raise typer.Exit(1)


@app.command()
@configured(model="argument")
def decode(
    engine: EngineConfig,
    users: Annotated[str, typer.Option(help="Sequences at once, one run for each number.")] = DECODE_USERS,
    prompt: Annotated[int, typer.Option(help="Prompt tokens of each sequence.", min=1)] = 128,
    tokens: Annotated[int, typer.Option("--output", help="Tokens to write for each sequence.", min=2)] = 64,
    seed: Seed = 0,
    json: JsonFile = None,
) -> None:
    """Measure reading and writing tokens in this process, without a server."""
    from octavo.bench.decode import bench_decode

    counts = _whole_numbers(users)
    built, resolved = _load(engine)
    with counted_progress() as progress:
        rows = [
            bench_decode(built, resolved, count, prompt_tokens=prompt, output_tokens=tokens, seed=seed)
            for count in progress.track(counts, description="measuring")
        ]
    table = plain_table("users", "prefill tok/s", "decode tok/s", "step ms")
    for row in rows:
        table.add_row(str(row.users), f"{row.prefill_tok_s:.1f}", f"{row.decode_tok_s:.1f}", f"{row.step_ms:.2f}")
    title = f"{engine.model}: {prompt} prompt tokens, {tokens} output tokens; {resolved.backend} backend"
    print_table(title, table)
    _write_json(json, {"model": engine.model, "prompt_tokens": prompt, "output_tokens": tokens, "runs": rows})


@app.command()
@configured(model="argument")
def perplexity(
    engine: EngineConfig,
    text: Annotated[
        Path | None,
        typer.Option(help="A UTF-8 text. Default: Python's language reference.", dir_okay=False, exists=True),
    ] = None,
    tokens: Annotated[int, typer.Option(help="How many of its tokens, from the start.", min=2)] = 20_000,
    window: Annotated[int, typer.Option(help="Tokens that are read together.", min=2)] = 512,
    json: JsonFile = None,
) -> None:
    """Measure how well a model foresees a text, with the given backend and KV format."""
    from octavo.bench.perplexity import Scorer, measure_perplexity, python_text, text_tokens
    from octavo.checkpoint.store import Store, default_store_dir
    from octavo.text.load import load_text

    with LoadBar() as bar:
        path = Store(default_store_dir()).resolve(engine.model, offline=engine.offline, progress=bar.update)
        tokenizer = load_text(path).tokenizer
        words = python_text() if text is None else text.read_text(encoding="utf-8")
        ids = text_tokens(lambda words: tokenizer.encode(words, add_special=False), words, tokens)
        scorer = Scorer(engine, path, window, lambda done, total: bar.update(f"Loading {path.name}", done, total))
    with counted_progress() as progress:
        figures = measure_perplexity(scorer, ids, window, lambda starts: progress.track(starts, description="scoring"))
    table = plain_table("", "")
    table.add_row("perplexity", f"{figures.perplexity:.4f}")
    table.add_row("nats per token", f"{figures.nats_per_token:.5f}")
    table.add_row("tokens scored", f"{figures.scored}, in windows of {window}")
    table.add_row("fingerprint of the tokens", figures.fingerprint)
    print_table(f"{engine.model}: {figures.backend} backend, {figures.dtype}, KV {engine.kv_dtype}", table)
    _write_json(json, figures)


@app.command()
@configured(model="argument")
def start(
    engine: EngineConfig,
    runs: Annotated[int, typer.Option(help="How often a server is started.", min=1)] = 5,
    idle: Annotated[float, typer.Option(help="Seconds over which each then idles.", min=0.1)] = 3.0,
    json: JsonFile = None,
) -> None:
    """Measure the time from `octavo serve` to the first token, its memory, and its CPU when idle; medians."""
    from octavo.bench.start import bench_start

    with counted_progress() as progress:
        figures = bench_start(
            arguments_of(engine),
            runs=runs,
            idle_s=idle,
            track=lambda numbers: progress.track(numbers, description="starting"),
        )
    table = plain_table("", "")
    table.add_row("to the address", f"{figures.address_s:.2f} s")
    table.add_row("to the first token", f"{figures.first_token_s:.2f} s")
    table.add_row("peak memory", format_bytes(figures.peak_rss_bytes))
    table.add_row("CPU when idle", f"{figures.idle_cpu:.2%} of a core")
    print_table(f"{engine.model}: {figures.runs} starts, medians", table)
    _write_json(json, figures)


@app.command()
@configured(model="argument")
def serve(
    engine: EngineConfig,
    users: Annotated[int, typer.Option(help="Users at once; each asks again when it is answered.", min=1)] = 23,
    requests: Annotated[
        int | None, typer.Option(help="Requests of each user. Default: 8 alone, 4 of 8, 3 of 23, 2 of 64.", min=1)
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="A running OpenAI server. Default: one is started with the options given.")
    ] = None,
    served_model: Annotated[
        str | None, typer.Option(help="Which of the server's models to ask. Default: its first.")
    ] = None,
    seed: Seed = 0,
    json: JsonFile = None,
) -> None:
    """Measure a server under the load of many users who chat."""
    from octavo.bench.serve import bench_serve
    from octavo.bench.server_process import ServerProcess

    with ExitStack() as stack:
        server = None
        if base_url is None:
            with diagnostics().status(f"starting octavo serve {engine.model}"):
                server = stack.enter_context(ServerProcess(arguments_of(engine)))
            base_url = server.base_url
        progress = stack.enter_context(counted_progress())
        bar = progress.add_task(f"{users} users", total=None)

        def advance(_: Exchange, total: int) -> None:
            progress.update(bar, advance=1, total=total)

        report = bench_serve(
            base_url,
            users=users,
            per_user=requests,
            seed=seed,
            model=served_model,
            on_exchange=advance,
            peak_rss_bytes=lambda: None if server is None else server.peak_rss_bytes(),
        )
    print_table(f"{report.model}: {report.users} users x {report.requests_per_user} requests", _report_table(report))
    _write_json(json, report)
    if report.failed:
        for error in report.errors:
            output().print(f"[red]{error}[/]")
        raise typer.Exit(1)


def _load(config: EngineConfig) -> tuple[Engine, Resolved]:
    from octavo.build import BuildOrder, build_engine
    from octavo.checkpoint.store import Store, default_store_dir

    with LoadBar() as bar:
        path = Store(default_store_dir()).resolve(config.model, offline=config.offline, progress=bar.update)
        order = BuildOrder(config=config, path=str(path), eos_ids=[])
        return build_engine(msgspec.to_builtins(order), bar.update)


def _whole_numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise typer.BadParameter(f"--users takes whole numbers such as {DECODE_USERS}, got {text!r}")
    return numbers


def _write_json(path: Path | None, numbers: Any) -> None:
    if path is not None:
        write_json(path, numbers)


def _report_table(report: LoadReport) -> Table:
    def show(value: float | None, form: str) -> str:
        return "n/a" if value is None else format(value, form)

    def times(spread: Spread) -> str:
        return f"{show(spread.p50_ms, '.1f')} / {show(spread.p95_ms, '.1f')} ms"

    engine = report.engine
    rss = engine.peak_rss_bytes
    table = plain_table("", "")
    rows = {
        "requests": f"{report.requests}, {report.failed} failed, in {report.wall_s:.1f} s",
        "tokens": f"{report.prompt_tokens} prompt, {report.output_tokens} output",
        "output": f"{report.output_tok_s:.1f} tok/s",
        "total": f"{report.total_tok_s:.1f} tok/s",
        "time to first token": f"{times(report.ttft)} (p50 / p95)",
        "between tokens": f"{times(report.inter_token)} (p50 / p95)",
        "peak memory": "n/a" if rss is None else format_bytes(rss),
        "computing": "n/a" if engine.compute_s is None else f"{engine.compute_s / report.wall_s:.1%} of the time",
        "KV utilisation": show(engine.kv_utilisation, ".1%"),
        "preemptions": show(engine.preemptions, "d"),
        "prefix hits": "n/a" if engine.hit_tokens is None else f"{engine.hit_tokens} tokens",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table
