"""Batch files: what a request line must be, which lines a resumed run still has to answer, and torn ends."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from octavo.cli.batch_file import (
    Answered,
    BatchLine,
    BatchResponse,
    BatchResult,
    ResultFile,
    count_lines,
    read_requests,
)
from octavo.errors import BatchFileError


def request_line(custom_id: str, **changes: Any) -> str:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body} | changes)


def requests_in(tmp_path: Path, *lines: str, answered: Answered | None = None) -> list[BatchLine | BatchResult]:
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return list(read_requests(path, answered or Answered()))


def answer(custom_id: str) -> BatchResult:
    return BatchResult.of(custom_id, BatchResponse(200, "r", {}))


def test_good_lines_keep_their_body_as_written(tmp_path: Path) -> None:
    first, second = requests_in(tmp_path, request_line("a", body={"x": [1, "ü"]}), "", request_line("b"))
    assert isinstance(first, BatchLine)
    assert isinstance(second, BatchLine)
    assert json.loads(bytes(first.body)) == {"x": [1, "ü"]}
    assert (first.custom_id, second.custom_id) == ("a", "b")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not a batch request"),
        ("[1]", "not a batch request"),
        ('{"custom_id": 5}', "not a batch request"),
        (request_line("x", method="GET"), "method must be POST"),
        (request_line("x", url="/v1/embeddings"), "url must be one of"),
        (request_line("x", body={"stream": True}), "stream"),
        ("[" * 100_000, "not a batch request"),
    ],
)
def test_a_bad_line_becomes_an_error_that_names_it(tmp_path: Path, line: str, words: str) -> None:
    good, bad, after = requests_in(tmp_path, request_line("a"), line, request_line("b"))
    assert isinstance(good, BatchLine)
    assert isinstance(bad, BatchResult)
    assert isinstance(after, BatchLine)
    assert bad.failed
    assert bad.error is not None
    assert bad.error.message.startswith("line 2: ")
    assert words in bad.error.message
    assert bad.custom_id == ("x" if '"x"' in line else None)


def test_invalid_utf8_is_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"custom_id": "\xff"}\n' + request_line("a").encode())
    bad, good = read_requests(path, Answered())
    assert isinstance(bad, BatchResult)
    assert isinstance(good, BatchLine)


def test_a_repeated_custom_id_is_refused_and_says_whose_it_is(tmp_path: Path) -> None:
    first, second = requests_in(tmp_path, request_line("a"), request_line("a"))
    assert isinstance(first, BatchLine)
    assert isinstance(second, BatchResult)
    assert second.error is not None
    assert "line 1" in second.error.message


def test_what_is_answered_is_left_out(tmp_path: Path) -> None:
    lines = [request_line("a"), "{", request_line("b"), request_line("a"), request_line("c")]
    everything = requests_in(tmp_path, *lines)
    assert len(everything) == 5
    answered = Answered()
    for result in (answer("b"), *(one for one in everything if isinstance(one, BatchResult))):
        answered.add(result)
    left = requests_in(tmp_path, *lines, answered=answered)
    assert [one.custom_id for one in left] == ["a", "c"]


def test_the_refusal_of_a_duplicate_does_not_count_as_the_answer(tmp_path: Path) -> None:
    lines = [request_line("a"), request_line("a")]
    answered = Answered()
    answered.add(next(one for one in requests_in(tmp_path, *lines) if isinstance(one, BatchResult)))
    assert [one.custom_id for one in requests_in(tmp_path, *lines, answered=answered)] == ["a"]


def test_results_survive_reopening(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with ResultFile(path) as results:
        results.write(answer("a"))
        assert json.loads(path.read_text())["custom_id"] == "a"  # written through at once
    with ResultFile(path) as results:
        assert results.answered.custom_ids == {"a"}
        results.write(answer("b"))
    assert [json.loads(line)["custom_id"] for line in path.read_text().splitlines()] == ["a", "b"]


def test_a_torn_end_is_cut_off_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with ResultFile(path) as results:
        results.write(answer("a"))
        results.write(answer("b"))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole)):
        path.write_bytes(whole[:end])
        with ResultFile(path) as results:
            assert results.answered.custom_ids == {"a"}
        assert path.read_bytes() == whole[:first]


@pytest.mark.parametrize("content", ["important\n", '{"a": 1}', request_line("a") + "\n", "x"])
def test_a_file_of_another_kind_is_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(content)
    with pytest.raises(BatchFileError, match="line 1"):
        ResultFile(path)
    assert path.read_text() == content


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(BatchFileError, match="cannot be read"):
        count_lines(tmp_path / "absent.jsonl")
    with pytest.raises(BatchFileError, match="cannot be written"):
        ResultFile(tmp_path / "no" / "such" / "directory.jsonl")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full"])
def test_only_plain_files_have_an_end(device: str) -> None:
    """An endless device would be read for ever, and a pipe is empty when it is read for the second time."""
    with pytest.raises(BatchFileError, match="no plain file"):
        count_lines(Path(device))
    with pytest.raises(BatchFileError, match="no plain file"):
        ResultFile(Path(device))


def test_a_pipe_is_not_taken_for_an_answered_file() -> None:
    reading, writing = os.pipe()
    os.write(writing, request_line("a").encode() + b"\n")
    os.close(writing)
    try:
        with pytest.raises(BatchFileError, match="no plain file"):
            count_lines(Path(f"/dev/fd/{reading}"))
    finally:
        os.close(reading)


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with ResultFile(tmp_path / "out") as results, open("/dev/full", "wb", buffering=0) as full:
        os.dup2(full.fileno(), results._file.fileno())
        with pytest.raises(BatchFileError, match=r"out: cannot be written: No space left"):
            results.write(answer("a"))
