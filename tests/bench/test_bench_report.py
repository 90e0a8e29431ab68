"""The report's arithmetic, against numbers worked out by hand."""

import pytest

from octavo.bench.exchange import Exchange
from octavo.bench.report import EngineFigures, LoadReport, load_report, percentile, spread


def report_of(*exchanges: Exchange, wall_s: float = 2.0) -> LoadReport:
    return load_report(
        exchanges,
        wall_s,
        model="m",
        users=1,
        requests_per_user=len(exchanges),
        seed=0,
        output_tokens_asked=100,
        engine=EngineFigures(),
    )


def test_percentiles_interpolate() -> None:
    assert percentile([1.0], 0.95) == 1.0
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert percentile([0.0, 10.0], 0.95) == pytest.approx(9.5)
    assert percentile([float(i) for i in range(101)], 0.95) == pytest.approx(95.0)


def test_spread_sorts_and_gives_milliseconds() -> None:
    result = spread([0.003, 0.001, 0.002])
    assert result.p50_ms == pytest.approx(2.0)
    assert result.p95_ms == pytest.approx(2.9)
    assert spread([]).p50_ms is None


def test_failed_chats_count_as_failed_and_nothing_else() -> None:
    good = Exchange(started=10.0, first=10.5, ended=12.0, gaps=[0.1, 0.2], prompt_tokens=20, output_tokens=3)
    bad = Exchange(started=10.0, first=11.0, ended=11.0, gaps=[9.0], prompt_tokens=99, output_tokens=99, error="broke")
    report = report_of(good, bad, bad)
    assert (report.requests, report.failed) == (3, 2)
    assert (report.prompt_tokens, report.output_tokens) == (20, 3)
    assert report.output_tok_s == pytest.approx(1.5)
    assert report.total_tok_s == pytest.approx(11.5)
    assert report.ttft.p50_ms == pytest.approx(500.0)
    assert report.inter_token.p50_ms == pytest.approx(150.0)
    assert report.errors == ["broke"]
