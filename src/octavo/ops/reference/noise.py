"""Counter-based noise: the random number of (seed, choice, position, token id) is a hash of exactly these four, so a
draw never depends on batch mates, on order or on history. Owns the hash; how noise becomes a token is `sample.py`.

Shapes: S draws, M token ids. The hash is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable
pseudorandom number generators, OOPSLA 2014), whose stream at counter i is mix(key + i * GOLDEN).
"""

from __future__ import annotations

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)


def gumbel(seed_S: np.ndarray, choice_S: np.ndarray, position_S: np.ndarray, id_SM: np.ndarray) -> np.ndarray:
    """Standard Gumbel noise, float64 [S, M]: the argmax of log p + noise is a draw from p (Gumbel 1954)."""
    noise_SM = uniform(seed_S, choice_S, position_S, id_SM)
    for _ in range(2):
        np.log(noise_SM, out=noise_SM)
        np.negative(noise_SM, out=noise_SM)
    return noise_SM


def uniform(seed_S: np.ndarray, choice_S: np.ndarray, position_S: np.ndarray, id_SM: np.ndarray) -> np.ndarray:
    """Uniform float64 [S, M] in the open interval (0, 1), odd multiples of 2^-53, for the token ids `id_SM`.

    The counters are int64; `id_SM` may be [1, M] when all draws want the same ids.
    """
    key_S = np.zeros(len(seed_S), np.uint64)
    for counter_S in (seed_S, choice_S, position_S):
        key_S = _mix((key_S ^ counter_S.view(np.uint64)) + GOLDEN)
    stream_SM = (id_SM.astype(np.uint64) + np.uint64(1)) * GOLDEN
    bits_SM = _mix(key_S[:, None] + stream_SM)
    bits_SM >>= np.uint64(12)
    uniform_SM = bits_SM.astype(np.float64)
    uniform_SM += 0.5
    uniform_SM *= 2.0**-52
    return uniform_SM


def _mix(z: np.ndarray) -> np.ndarray:
    """A bijection of 64-bit words in which every input bit reaches every output bit. Overwrites and returns `z`."""
    z ^= z >> np.uint64(30)
    z *= MIX_1
    z ^= z >> np.uint64(27)
    z *= MIX_2
    z ^= z >> np.uint64(31)
    return z
