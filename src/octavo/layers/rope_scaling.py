"""Rotary frequencies from a checkpoint's config: the plain ones and every scaling kind that Octavo serves. A few dozen
numbers in plain Python; the table over positions is made in `rope.py`.

P rotary pairs; pair p of 2P rotated dimensions turns by position * frequency[p].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from octavo.errors import CheckpointError, UnsupportedModel
from octavo.layers.config_keys import ConfigKeys

ROPE_KINDS = ("default", "linear", "dynamic", "llama3", "yarn")
MAX_POSITIONS = 1 << 21  # twice the longest context that is served anywhere; bounds the table


@dataclass(frozen=True, slots=True)
class Rotation:
    """Radians per position of each pair, and the factor on cos and sin (YaRN's attention temperature).

    `context_length` is how many positions the scaling was made for.
    """

    frequency_P: tuple[float, ...]
    magnitude: float
    context_length: int


def rotation_from_config(keys: ConfigKeys, head_dim: int) -> Rotation:
    """Read `rope_parameters` (transformers 5) or `rope_scaling` and `rope_theta` (before).

    UnsupportedModel for a scaling kind not in ROPE_KINDS; CheckpointError for missing or senseless numbers.
    """
    rope = keys.section("rope_parameters" if "rope_parameters" in keys else "rope_scaling")
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind not in ROPE_KINDS:
        raise UnsupportedModel(f"rope scaling of kind {kind!r} is not supported; supported: {', '.join(ROPE_KINDS)}")
    theta = rope.real("rope_theta", keys.real("rope_theta", 10000.0))
    portion = rope.real("partial_rotary_factor", keys.real("partial_rotary_factor", 1.0))
    dims = int(head_dim * portion)
    if theta <= 1 or dims % 2 or not 0 < dims <= head_dim:
        raise CheckpointError(f"rope needs rope_theta > 1 and an even number of dimensions, got {theta:g} and {dims}")
    context = keys.whole("max_position_embeddings", high=MAX_POSITIONS)
    plain_P = [theta ** (-2 * p / dims) for p in range(dims // 2)]
    if kind == "linear":
        factor = _factor(rope)
        return Rotation(tuple(f / factor for f in plain_P), 1.0, context)
    if kind == "llama3":
        return Rotation(_llama3(rope, plain_P, context), 1.0, context)
    if kind == "yarn":
        return _yarn(rope, plain_P, theta, context)
    # "dynamic" (NTK) changes the frequencies only past max_position_embeddings, where keys already in the cache would
    # have to turn again; up to there, which is what we serve, it is the plain rotation.
    return Rotation(tuple(plain_P), 1.0, context)


def _factor(rope: ConfigKeys) -> float:
    factor: float = rope.real("factor")
    if factor < 1:
        raise CheckpointError(f"{rope.name('factor')!r} must be at least 1, got {factor:g}")
    return factor


def _llama3(rope: ConfigKeys, plain_P: list[float], context: int) -> tuple[float, ...]:
    """Llama 3.1: long waves are slowed by `factor`, short ones kept, those between interpolated.

    GGUF files hold the outcome, a divisor per pair (`frequency_factors`), in place of the four numbers.
    """
    if "frequency_factors" in rope:
        divisors = rope.reals("frequency_factors", len(plain_P))
        return tuple(frequency / divisor for frequency, divisor in zip(plain_P, divisors, strict=True))
    factor = _factor(rope)
    low, high = rope.real("low_freq_factor"), rope.real("high_freq_factor")
    original = rope.whole("original_max_position_embeddings", context)
    if not 0 < low < high:
        raise CheckpointError(f"rope scaling needs 0 < low_freq_factor < high_freq_factor, got {low:g} and {high:g}")
    scaled = []
    for frequency in plain_P:
        turns = original * frequency / (2 * math.pi)  # over the context of the original training
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)
        scaled.append(frequency * (kept + (1 - kept) / factor))
    return tuple(scaled)


def _yarn(rope: ConfigKeys, plain_P: list[float], theta: float, context: int) -> Rotation:
    """YaRN (arXiv 2309.00071): pairs that turn often are kept, those that turn rarely interpolated, a ramp between."""
    factor = _factor(rope)
    original = rope.whole("original_max_position_embeddings", context)
    dims = 2 * len(plain_P)

    def dimension_turning(turns: float) -> float:
        return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    begin = dimension_turning(max(rope.real("beta_fast", 32.0), 1e-9))
    end = dimension_turning(max(rope.real("beta_slow", 1.0), 1e-9))
    if rope.flag("truncate", True):
        begin, end = math.floor(begin), math.ceil(end)
    begin, end = max(begin, 0), min(end, dims - 1)
    width = end - begin or 0.001
    scaled = []
    for pair, frequency in enumerate(plain_P):
        interpolated = min(max((pair - begin) / width, 0.0), 1.0)
        scaled.append(frequency * (1 - interpolated + interpolated / factor))
    reach = min(max(context, int(original * factor)), MAX_POSITIONS)
    return Rotation(tuple(scaled), _yarn_magnitude(rope, factor), reach)


def _yarn_magnitude(rope: ConfigKeys, factor: float) -> float:
    """The paper's 0.1 ln(factor) + 1 unless the checkpoint says otherwise."""
    if "attention_factor" in rope:
        return float(rope.real("attention_factor"))
    mscale: float = rope.real("mscale", 0.0)
    mscale_all: float = rope.real("mscale_all_dim", 0.0)
    if mscale and mscale_all:
        return (0.1 * mscale * math.log(factor) + 1) / (0.1 * mscale_all * math.log(factor) + 1)
    return 0.1 * math.log(factor) + 1
