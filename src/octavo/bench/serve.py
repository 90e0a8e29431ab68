"""`octavo bench serve` without its terminal: from the first probe of a server, through the load, to the report."""

from __future__ import annotations

from collections.abc import Callable

from octavo.bench.chats import draw_chats, requests_per_user
from octavo.bench.engine_metrics import engine_figures, read_metrics
from octavo.bench.exchange import Exchange
from octavo.bench.load import inspect_target, run_load
from octavo.bench.report import LoadReport, load_report


def bench_serve(
    base_url: str,
    *,
    users: int,
    per_user: int | None,
    seed: int,
    model: str | None = None,
    on_exchange: Callable[[Exchange, int], None],
    peak_rss_bytes: Callable[[], int | None] = lambda: None,
) -> LoadReport:
    """Load the server at `base_url` and report. `per_user` None takes the customary number of requests.

    `on_exchange(exchange, total)` follows the progress. BenchError when the server does
    not answer at all; requests that fail are counted in the report.
    """
    target = inspect_target(base_url, model, seed=seed)
    per_user = requests_per_user(users) if per_user is None else per_user
    chats = draw_chats(users, per_user, seed=seed, scale=target.scale, context_length=target.context_length)
    total = users * per_user
    before = read_metrics(base_url)
    exchanges, wall_s = run_load(target, chats, lambda exchange: on_exchange(exchange, total))
    return load_report(
        exchanges,
        wall_s,
        model=target.model,
        users=users,
        requests_per_user=per_user,
        seed=seed,
        output_tokens_asked=sum(chat.output_tokens for own in chats for chat in own),
        engine=engine_figures(before, read_metrics(base_url), peak_rss_bytes()),
    )
