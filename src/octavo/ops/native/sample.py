"""Sampling: for now the reference's."""

from __future__ import annotations

import ctypes

import numpy as np

from octavo.ops.backend import SampleBatch, Samples
from octavo.ops.reference.sample import draw_samples as reference


def draw_samples(library: ctypes.CDLL, team: int, logits_SV: np.ndarray, batch: SampleBatch) -> Samples:  # noqa: ARG001
    return reference(logits_SV, batch)
