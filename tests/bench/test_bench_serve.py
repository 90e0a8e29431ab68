"""The load test against a small server of another make: what it reports is what that server saw."""

import pytest
from stub_server import TEMPLATE_TOKENS, TOKENS_PER_WORD, Stub, running

from octavo.bench.client import Client
from octavo.bench.exchange import Exchange
from octavo.bench.load import inspect_target
from octavo.bench.report import LoadReport
from octavo.bench.serve import bench_serve
from octavo.errors import BenchError


def load(stub: Stub, users: int = 5, per_user: int | None = None, seed: int = 0) -> LoadReport:
    return bench_serve(stub.base_url, users=users, per_user=per_user, seed=seed, on_exchange=lambda *_: None)


def test_tokens_counted_are_tokens_sent() -> None:
    with running(Stub()) as stub:
        report = load(stub)
    assert report.requests == len(stub.streams) == 5 * 5
    assert report.failed == 0
    assert report.output_tokens == sum(body["max_tokens"] for body in stub.streams) == report.output_tokens_asked
    assert report.prompt_tokens == sum(stub.prompt_tokens(body) for body in stub.streams)
    assert report.output_tok_s == pytest.approx(report.output_tokens / report.wall_s)
    assert report.total_tok_s == pytest.approx((report.output_tokens + report.prompt_tokens) / report.wall_s)
    assert all(body["ignore_eos"] is True for body in stub.streams)


def test_engine_figures_are_the_difference_of_two_readings() -> None:
    with running(Stub()) as stub:
        report = load(stub, users=2, per_user=2)
    assert report.engine.kv_utilisation == pytest.approx(0.97)
    assert report.engine.preemptions == 4
    assert report.engine.hit_tokens == 0
    assert report.engine.peak_rss_bytes is None


def test_users_ask_at_once_and_each_waits_for_its_answer() -> None:
    with running(Stub(token_s=0.001)) as stub:
        load(stub, users=6, per_user=2)
    assert stub.most_active == 6


def test_times_follow_the_servers_pace() -> None:
    with running(Stub(token_s=0.01)) as stub:
        report = load(stub, users=1, per_user=1)
    assert report.inter_token.p50_ms is not None
    assert report.ttft.p50_ms is not None
    assert 10 <= report.inter_token.p50_ms < 30
    assert 10 <= report.ttft.p50_ms < 60


def test_broken_streams_are_counted_and_do_not_stop_the_load() -> None:
    with running(Stub(fail_every=3)) as stub:
        report = load(stub, users=3, per_user=4)
    assert report.requests == 12
    assert report.failed == 4
    assert report.output_tokens < report.output_tokens_asked
    assert report.errors
    assert "the connection ended inside the answer" in report.errors[0]


def test_a_server_that_refuses_unknown_fields_is_asked_without_them() -> None:
    with running(Stub(refuse=frozenset({"ignore_eos"}))) as stub:
        report = load(stub, users=1, per_user=1)
    assert report.failed == 0
    assert "ignore_eos" not in stub.streams[0]


def test_a_server_without_metrics_gives_no_figures() -> None:
    with running(Stub(metrics=False)) as stub:
        report = load(stub, users=1, per_user=1)
    assert report.engine.kv_utilisation is None
    assert report.engine.preemptions is None


def test_probing_finds_template_and_word_costs() -> None:
    with running(Stub()) as stub:
        target = inspect_target(stub.base_url)
    assert target.model == "stub"
    assert target.scale.per_word == pytest.approx(TOKENS_PER_WORD)
    assert target.scale.fixed == pytest.approx(TEMPLATE_TOKENS)


def test_nobody_at_the_address_is_one_clear_error() -> None:
    with pytest.raises(BenchError, match=r"127\.0\.0\.1:9.*does not answer"):
        bench_serve("http://127.0.0.1:9", users=1, per_user=1, seed=0, on_exchange=lambda *_: None)


def test_progress_reports_every_chat_once() -> None:
    seen: list[tuple[Exchange, int]] = []
    with running(Stub()) as stub:
        bench_serve(stub.base_url, users=3, per_user=2, seed=0, on_exchange=lambda *one: seen.append(one))
    assert len(seen) == 6
    assert {total for _, total in seen} == {6}


def test_a_base_url_may_end_in_v1() -> None:
    with running(Stub()) as stub:
        client = Client(stub.base_url + "/v1/")
        assert b"stub" in client.get("/v1/models")
        client.close()


def test_a_connection_that_the_server_gave_up_between_chats_is_opened_again() -> None:
    with running(Stub(hang_up=True)) as stub:
        report = load(stub, users=2, per_user=3)
    assert report.failed == 0
    assert len(stub.streams) == 6
