"""The cuts before BPE equal those of each family's published tokenizer.json, part by part."""

from __future__ import annotations

import pytest
from sample_texts import TEXTS, long_text, mixtures
from tiny_tokenizers import CUTS
from tokenizers.pre_tokenizers import Sequence

from octavo.text.pretokenizers import PRE_TOKENIZERS

VARIED = [*TEXTS, "\u00bd  ", "\u00bd  \n \u00bd", "\u10d0\u10d1 \u10d2", *mixtures(400, seed=4), long_text()]


@pytest.mark.parametrize("family", CUTS)
def test_cuts_equal_the_published_ones(family):
    original, ours = Sequence(CUTS[family]), PRE_TOKENIZERS[family].build()
    for text in VARIED:
        assert ours.pre_tokenize_str(text) == original.pre_tokenize_str(text)


def test_every_name_is_covered_by_a_family():
    """Other names are second names of the same cuts."""
    assert {PRE_TOKENIZERS[family] for family in CUTS} == set(PRE_TOKENIZERS.values())
    assert len(set(PRE_TOKENIZERS.values())) == len(CUTS)
