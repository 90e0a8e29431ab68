"""Counter-based noise: the random number of (seed, choice, position, token id) is a hash of exactly these four, so a
draw never depends on batch mates, on order or on history. Owns the hash; how noise becomes a token is `sample.py`.

Shapes: S draws, V vocabulary. The hash is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable
pseudorandom number generators, OOPSLA 2014), whose stream at counter i is mix(key + i * GOLDEN).
"""

from __future__ import annotations

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)


def gumbel(seed_S: np.ndarray, choice_S: np.ndarray, position_S: np.ndarray, vocabulary: int) -> np.ndarray:
    """Standard Gumbel noise, float64 [S, V]: the argmax of log p + noise is a draw from p (Gumbel 1954)."""
    noise_SV = uniform(seed_S, choice_S, position_S, vocabulary)
    for _ in range(2):
        np.log(noise_SV, out=noise_SV)
        np.negative(noise_SV, out=noise_SV)
    return noise_SV


def uniform(seed_S: np.ndarray, choice_S: np.ndarray, position_S: np.ndarray, vocabulary: int) -> np.ndarray:
    """Uniform float64 [S, V] in the open interval (0, 1): odd multiples of 2^-53."""
    key_S = np.zeros(len(seed_S), np.uint64)
    for counter_S in (seed_S, choice_S, position_S):
        key_S = _mix((key_S ^ counter_S.astype(np.int64).view(np.uint64)) + GOLDEN)
    id_V = np.arange(1, vocabulary + 1, dtype=np.uint64) * GOLDEN
    bits_SV = _mix(key_S[:, None] + id_V)
    bits_SV >>= np.uint64(12)
    uniform_SV = bits_SV.astype(np.float64)
    uniform_SV += 0.5
    uniform_SV *= 2.0**-52
    return uniform_SV


def _mix(z: np.ndarray) -> np.ndarray:
    """A bijection of 64-bit words in which every input bit reaches every output bit. Overwrites and returns `z`."""
    z ^= z >> np.uint64(30)
    z *= MIX_1
    z ^= z >> np.uint64(27)
    z *= MIX_2
    z ^= z >> np.uint64(31)
    return z
