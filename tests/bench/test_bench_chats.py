"""The drawn chats: their lengths follow the stated distribution, their words become the stated number of tokens."""

import math
import random
import statistics

import pytest

from octavo.bench.chats import (
    OUTPUT_LENGTHS,
    PROMPT_LENGTHS,
    WORDS,
    Lengths,
    PromptScale,
    draw_chats,
    requests_per_user,
)

SCALE = PromptScale(fixed=7.0, per_word=2.0)


@pytest.mark.parametrize("lengths", [PROMPT_LENGTHS, OUTPUT_LENGTHS])
def test_unclipped_lengths_have_the_stated_mean_and_spread(lengths: Lengths) -> None:
    unclipped = Lengths(lengths.mean, lengths.sigma, 0, 10**9)
    rng = random.Random(1)
    drawn = [unclipped.draw(rng) for _ in range(40_000)]
    assert statistics.fmean(drawn) == pytest.approx(lengths.mean, rel=0.03)
    logs = [math.log(max(length, 0.5)) for length in drawn]
    assert statistics.stdev(logs) == pytest.approx(lengths.sigma, rel=0.03)


def test_the_lengths_are_those_of_the_definition() -> None:
    assert (PROMPT_LENGTHS.mean, PROMPT_LENGTHS.sigma, PROMPT_LENGTHS.low, PROMPT_LENGTHS.high) == (160, 0.9, 16, 1024)
    assert (OUTPUT_LENGTHS.mean, OUTPUT_LENGTHS.sigma, OUTPUT_LENGTHS.low, OUTPUT_LENGTHS.high) == (128, 0.8, 8, 512)


def test_clipping_reaches_both_bounds_and_passes_neither() -> None:
    rng = random.Random(2)
    drawn = [PROMPT_LENGTHS.draw(rng) for _ in range(5_000)]
    assert min(drawn) == 16
    assert max(drawn) == 1024


def test_requests_per_user_at_the_customary_sizes() -> None:
    assert [requests_per_user(users) for users in (1, 8, 23, 64)] == [8, 4, 3, 2]
    assert [requests_per_user(users) for users in (2, 4, 16, 128, 1000)] == [6, 5, 3, 2, 2]


def test_same_seed_same_chats_and_another_seed_others() -> None:
    first, again, other = (draw_chats(3, 2, seed=seed, scale=SCALE) for seed in (5, 5, 6))
    assert first == again
    assert first != other
    assert [len(own) for own in first] == [2, 2, 2]


def test_words_hit_the_drawn_number_of_tokens() -> None:
    for own in draw_chats(20, 3, seed=0, scale=SCALE):
        for chat in own:
            tokens = SCALE.fixed + SCALE.per_word * len(chat.text.split())
            assert abs(tokens - chat.prompt_tokens) <= SCALE.per_word / 2


def test_no_two_prompts_begin_alike() -> None:
    chats = [chat for own in draw_chats(64, 2, seed=0, scale=SCALE) for chat in own]
    beginnings = {tuple(chat.text.split()[:4]) for chat in chats}
    assert len(beginnings) == len(chats)


def test_a_small_context_cuts_chats_to_fit() -> None:
    scale = PromptScale(fixed=4.0, per_word=1.0)
    for own in draw_chats(30, 3, seed=3, scale=scale, context_length=128):
        for chat in own:
            assert scale.fixed + len(chat.text.split()) + chat.output_tokens <= 128
            assert chat.output_tokens >= 1


def test_words_are_distinct_and_plain() -> None:
    assert len(set(WORDS)) == len(WORDS) > 150
    assert all(word.isascii() and word.isalpha() for word in WORDS)
