"""The offline API on a tiny model: batches, chats and streams, alone and at once, and what happens when one is wrong,
left early or interrupted.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, SamplingParams
from octavo.errors import (
    CheckpointError,
    ConfigError,
    ContextLengthExceeded,
    EngineUnavailable,
    InvalidRequest,
    QueueFull,
    StoreError,
)
from octavo.types import FinishReason

GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
RANDOM = SamplingParams(temperature=1.0, max_tokens=20, seed=5, ignore_eos=True)
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]


@pytest.fixture(scope="module")
def path(tiny_model: Callable[[str], Path]) -> str:
    return str(tiny_model("llama"))


@pytest.fixture(scope="module")
def shared(path: str) -> Iterator[LLM]:
    with LLM(path, kv_memory="4MiB", max_running=8, debug=True) as llm:
        yield llm


@pytest.fixture
def llm(shared: LLM) -> Iterator[LLM]:
    """The shared model; each test leaves it without requests and without blocks."""
    yield shared
    stats = shared.stats()
    assert (stats.running, stats.waiting, stats.blocks_used) == (0, 0, 0)


@pytest.fixture
def own(path: str) -> LLM:
    """A model for a test that breaks it."""
    return LLM(path, kv_memory="4MiB", max_running=8, debug=True)


# --- batches ---


def test_one_prompt_in_every_form(llm: LLM) -> None:
    text = "the thin hint"
    tokens = llm.tokenizer.encode(text, add_special=True)
    forms: list[Any] = [text, tokens, [text], [tokens], (text,), iter([text])]
    results = [llm.generate(form, GREEDY) for form in forms]
    assert all(len(result) == 1 for result in results)
    [first] = results[0]
    assert first.prompt_tokens == tokens
    assert len(first.tokens) == GREEDY.max_tokens
    assert first.text == llm.tokenizer.decode(first.tokens)
    assert all(result[0].tokens == first.tokens for result in results)


def test_a_batch_keeps_its_order(llm: LLM) -> None:
    """More prompts than rows, of unlike lengths; each answer is the one that its prompt gets alone."""
    prompts = ["x" * (1 + 7 * i % 60) + str(i) for i in range(20)]
    batch = llm.generate(prompts, RANDOM)
    alone = [llm.generate(prompt, RANDOM)[0] for prompt in prompts]
    assert [each.text for each in batch] == [each.text for each in alone]
    assert len({each.text for each in batch}) == 20
    assert llm.generate([]) == []


def test_params_for_each_prompt(llm: LLM) -> None:
    short, long = SamplingParams(temperature=0, max_tokens=2), SamplingParams(temperature=0, max_tokens=7)
    first, second = llm.generate(["a", "b"], [short, long])
    assert (len(first.tokens), len(second.tokens)) == (2, 7)


def test_without_params_an_answer_is_bounded_and_fits(llm: LLM) -> None:
    """The model's context is 256 tokens; the default bound of 256 new ones must not refuse a prompt."""
    [answer] = llm.generate([[7] * 250])
    assert len(answer.tokens) <= 6


def test_choices_and_usage(llm: LLM) -> None:
    params = SamplingParams(n=3, seed=1, max_tokens=9, logprobs=2, ignore_eos=True)
    [answer] = llm.generate("in the " * 12, params)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.text for choice in answer.choices}) == 3
    assert answer.text == answer.choices[0].text
    assert answer.usage.prompt_tokens == len(answer.prompt_tokens)
    assert answer.usage.completion_tokens == 27
    for choice in answer.choices:
        assert choice.finish is FinishReason.LENGTH
        assert choice.logprobs is not None
        assert [report.token for report in choice.logprobs] == choice.tokens
    [again] = llm.generate("in the " * 12, params)
    assert [choice.tokens for choice in again.choices] == [choice.tokens for choice in answer.choices]
    assert again.usage.cached_tokens == (len(answer.prompt_tokens) - 1) // 16 * 16


def test_seeds(llm: LLM) -> None:
    unseeded = SamplingParams(max_tokens=20, ignore_eos=True)
    assert llm.generate("a", RANDOM)[0].tokens == llm.generate("a", RANDOM)[0].tokens
    assert llm.generate("a", unseeded)[0].tokens != llm.generate("a", unseeded)[0].tokens


def test_chat_is_the_template_and_generate(llm: LLM) -> None:
    text = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    [expected] = llm.generate(llm.tokenizer.encode(text, add_special=False), GREEDY)
    [chat] = llm.chat(CHAT, GREEDY)
    assert (chat.prompt_tokens, chat.choices) == (expected.prompt_tokens, expected.choices)
    both = llm.chat([CHAT, CHAT[1:]], GREEDY)
    assert len(both) == 2
    assert both[0].choices == expected.choices


def test_a_stop_string_ends_the_answer_and_the_work(llm: LLM) -> None:
    [whole] = llm.generate("a", GREEDY)
    stop = whole.text[4:6]
    aborted = llm.stats().aborted
    steps = llm.stats().steps
    params = SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True, stop=(stop,))
    [answer] = llm.generate("a", params)
    [choice] = answer.choices
    assert choice.text == whole.text[: whole.text.index(stop)]
    assert (choice.finish, choice.stop) == (FinishReason.STOP, stop)
    assert llm.stats().aborted == aborted + 1
    assert llm.stats().steps - steps < 20
    assert answer.usage.completion_tokens == len(choice.tokens) < 20


def test_a_stop_string_ends_one_choice_only(llm: LLM) -> None:
    params = SamplingParams(n=3, seed=1, max_tokens=30, ignore_eos=True)
    [whole] = llm.generate("a", params)
    first, text, third = (choice.text for choice in whole.choices)
    stop = next(text[i : i + 2] for i in range(5, 20) if text[i : i + 2] not in first + "|" + third)
    [cut] = llm.generate("a", SamplingParams(n=3, seed=1, max_tokens=30, ignore_eos=True, stop=(stop,)))
    assert (cut.choices[0], cut.choices[2]) == (whole.choices[0], whole.choices[2])
    assert cut.choices[1].finish is FinishReason.STOP
    assert cut.choices[1].text == text[: text.index(stop)]


# --- streams ---


@pytest.mark.parametrize("prompt", ["the thin", [5, 6, 7], CHAT], ids=["text", "tokens", "chat"])
def test_a_stream_is_the_answer_in_pieces(llm: LLM, prompt: Any) -> None:
    pieces = list(llm.stream(prompt, RANDOM))
    [whole] = llm.chat(prompt, RANDOM) if prompt is CHAT else llm.generate(prompt, RANDOM)
    assert "".join(pieces) == whole.text
    assert [token for piece in pieces for token in piece.tokens] == whole.tokens
    assert [piece.finish for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert pieces[-1].finish is FinishReason.LENGTH
    assert pieces[-1].usage is not None
    assert pieces[-1].usage.completion_tokens == 20


def test_streams_and_batches_at_once(llm: LLM) -> None:
    """Two streams read in turns with a batch in between: everyone gets what they get alone."""
    alone = ["".join(llm.stream(prompt, RANDOM)) for prompt in ("a", "b")]
    [batch_alone] = llm.generate("c", GREEDY)
    first, second = llm.stream("a", RANDOM), llm.stream("b", RANDOM)
    texts = [next(first), next(second)]
    [batch] = llm.generate("c", GREEDY)
    for i, stream in ((0, first), (1, second)):
        texts[i] += "".join(stream)
    assert texts == alone
    assert batch == batch_alone


def test_choices_of_a_stream(llm: LLM) -> None:
    params = SamplingParams(n=2, seed=3, max_tokens=10, ignore_eos=True)
    texts = ["", ""]
    for piece in llm.stream("a", params):
        texts[piece.choice] += piece
    assert texts == [choice.text for choice in llm.generate("a", params)[0].choices]


@pytest.mark.parametrize("way", ["drop", "close", "with", "never begun", "cycle"])
def test_a_stream_left_early_gives_its_blocks_back(llm: LLM, way: str) -> None:
    long = SamplingParams(max_tokens=200, ignore_eos=True)
    stream: Any = llm.stream("a", long)
    if way != "never begun":
        next(stream)
        assert llm.stats().blocks_used > 0
    if way == "close":
        stream.close()
        assert list(stream) == []
    elif way == "with":
        with stream:
            next(stream)
        assert list(stream) == []
    elif way == "cycle":
        stream.itself = stream
        del stream
        gc.collect()
    else:
        del stream
    assert llm.stats().blocks_used == 0


# --- wrong input ---


@pytest.mark.parametrize(
    ("prompts", "error"),
    [
        (["fine", [1, 2, 999_999]], InvalidRequest),
        (["fine", [-1]], InvalidRequest),
        (["fine", [3] * 400], ContextLengthExceeded),
        (["fine", []], InvalidRequest),
        (["fine", 3.5], InvalidRequest),
        (["fine", None], InvalidRequest),
        (["fine", ["nested"]], InvalidRequest),
        (["fine", "half a pair \ud800"], InvalidRequest),
        (None, InvalidRequest),
        (7, InvalidRequest),
        ("", InvalidRequest),
    ],
)
def test_a_bad_prompt_is_refused_before_anything_runs(llm: LLM, prompts: Any, error: type[Exception]) -> None:
    steps = llm.stats().steps
    with pytest.raises(error):
        llm.generate(prompts, GREEDY)
    assert llm.stats().steps == steps


def test_a_stream_of_no_prompt_is_refused(llm: LLM) -> None:
    with pytest.raises(InvalidRequest):
        llm.stream(None, GREEDY)  # type: ignore[arg-type]


def test_the_error_says_which_prompt(llm: LLM) -> None:
    with pytest.raises(InvalidRequest) as caught:
        llm.generate(["a", "b", [999_999]], GREEDY)
    assert "in prompt 2 of the batch" in caught.value.__notes__


def test_params_that_do_not_fit(llm: LLM) -> None:
    with pytest.raises(InvalidRequest, match="2 prompts and 1 params"):
        llm.generate(["a", "b"], [GREEDY])
    for wrong in ({"temperature": 0}, [{"temperature": 0}], 3):
        with pytest.raises(InvalidRequest, match="SamplingParams"):
            llm.generate(["a"], wrong)  # type: ignore[arg-type]
    with pytest.raises(ContextLengthExceeded):
        llm.generate("a", SamplingParams(max_tokens=257))


@pytest.mark.parametrize("messages", [[], [{"role": "king", "content": "x"}], [{"content": "x"}], [CHAT, []], "text"])
def test_bad_messages(llm: LLM, messages: Any) -> None:
    with pytest.raises(InvalidRequest):
        llm.chat(messages, GREEDY)


def test_a_bad_stream_is_refused_when_it_is_asked_for(llm: LLM) -> None:
    with pytest.raises(InvalidRequest):
        llm.stream([999_999], GREEDY)


@pytest.mark.parametrize(
    "options", [{"nonsense": 1}, {"block_size": 7}, {"chunk": "many"}, {"kv_memory": "lots"}, {"max_len": 10_000}]
)
def test_bad_options(path: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        LLM(path, **options)


def test_no_such_model(tmp_path: Path) -> None:
    with pytest.raises((StoreError, CheckpointError)):
        LLM(str(tmp_path / "absent"), offline=True)
    with pytest.raises(StoreError):
        LLM("no-such-model", offline=True)


def test_a_queue_bound_that_was_asked_for(path: str) -> None:
    with LLM(path, kv_memory="4MiB", queue=2) as llm:
        with pytest.raises(QueueFull):
            llm.generate(["a", "b", "c"], GREEDY)
        assert llm.stats().waiting == 0
        assert len(llm.generate(["a", "b"], GREEDY)) == 2


# --- interruption and the end ---


def test_ctrl_c_leaves_a_model_that_works(own: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes in the middle of a step: the step is finished first, then KeyboardInterrupt is raised."""
    expected = own.generate(["a", "b"], RANDOM)
    runner = own._engine._runner  # type: ignore[union-attr]
    launch, launches = runner.launch, []

    def interrupted(plan: Any) -> Any:
        launches.append(plan)
        if len(launches) == 3:
            signal.raise_signal(signal.SIGINT)
        return launch(plan)

    monkeypatch.setattr(runner, "launch", interrupted)
    stream = own.stream("a", RANDOM)
    with pytest.raises(KeyboardInterrupt):
        own.generate(["b", "c", "d"], RANDOM)
    assert own.stats().running == 1, "only the stream goes on"
    assert "".join(stream) == expected[0].text
    assert [each.text for each in own.generate(["a", "b"], RANDOM)] == [each.text for each in expected]
    assert own.stats().blocks_used == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_step_that_fails_ends_the_model(own: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(plan: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(own._engine._runner, "launch", broken)  # type: ignore[union-attr]
    stream = own.stream("a", GREEDY)
    with pytest.raises(ZeroDivisionError):
        own.generate("b", GREEDY)
    with pytest.raises(EngineUnavailable):
        own.generate("b", GREEDY)
    assert list(stream) == []


def test_a_closed_model_says_so(own: LLM) -> None:
    stream = own.stream("a", GREEDY)
    next(stream)
    own.close()
    own.close()
    for use in (lambda: own.generate("a"), lambda: own.chat(CHAT), lambda: own.stream("a"), own.stats):
        with pytest.raises(EngineUnavailable, match="closed"):
            use()
    assert list(stream) == []
    assert "closed" in repr(own)


# --- what is shown ---


def test_reprs(llm: LLM) -> None:
    [answer] = llm.generate("a", SamplingParams(temperature=0, max_tokens=200, n=2, ignore_eos=True))
    assert repr(answer).startswith("Generation('")
    assert "choices=2" in repr(answer)
    assert len(repr(answer)) < 300
    assert "finish='length'" in repr(answer.choices[0])
    assert "max_len=256" in repr(llm)


def test_progress_only_where_asked_for(llm: LLM, capfd: pytest.CaptureFixture[str]) -> None:
    llm.generate(["a", "b"], GREEDY)
    assert capfd.readouterr() == ("", "")
    llm.generate(["a", "b"], GREEDY, progress=True)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "2/2" in captured.err
    assert "tok/s" in captured.err
