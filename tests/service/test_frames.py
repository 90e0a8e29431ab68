"""Frames come out of a pipe as they went in, however the bytes are cut, and a cut-off one is dropped."""

import itertools
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.service.frames import read_frames, write_frame


def _through_pipe(raw: bytes, cuts: list[int]) -> list[bytes]:
    """What read_frames makes of `raw` when it arrives in pieces."""
    incoming, outgoing = os.pipe()
    frames: list[bytes] = []
    reader = threading.Thread(target=lambda: frames.extend(read_frames(incoming)))
    reader.start()
    edges = [0, *sorted(cut % (len(raw) + 1) for cut in cuts), len(raw)]
    for start, end in itertools.pairwise(edges):
        os.write(outgoing, raw[start:end])
    os.close(outgoing)
    reader.join()
    os.close(incoming)
    return frames


def _framed(messages: list[bytes]) -> bytes:
    return b"".join(len(message).to_bytes(4, "little") + message for message in messages)


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(0, 300), max_size=4))
def test_any_cut_of_the_bytes_gives_the_same_frames(messages: list[bytes], cuts: list[int]) -> None:
    assert _through_pipe(_framed(messages), cuts) == messages


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.data())
def test_a_frame_cut_off_by_the_end_is_dropped(messages: list[bytes], data: st.DataObject) -> None:
    raw = _framed(messages)
    end = data.draw(st.integers(0, len(raw)))
    whole = [m for i, m in enumerate(messages) if len(_framed(messages[: i + 1])) <= end]
    assert _through_pipe(raw[:end], []) == whole


def test_frames_larger_than_the_pipe_arrive_whole() -> None:
    incoming, outgoing = os.pipe()
    messages = [os.urandom(3_000_000), b"", os.urandom(70_000)]

    def write() -> None:
        for message in messages:
            write_frame(outgoing, message)
        os.close(outgoing)

    writer = threading.Thread(target=write)
    writer.start()
    assert list(read_frames(incoming)) == messages
    writer.join()
    os.close(incoming)


def test_writing_to_a_reader_that_is_gone_raises() -> None:
    incoming, outgoing = os.pipe()
    os.close(incoming)
    with pytest.raises(BrokenPipeError):
        write_frame(outgoing, b"hello")
    os.close(outgoing)
