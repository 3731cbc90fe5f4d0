"""Gumbel noise that is a hash of (seed, position, token id): the one source of randomness in paceline.

The largest of `logit / temperature + noise` is a sample of the softmax. As the noise depends on the seed and the text
alone, it does not matter how many tokens were drafted; and a draft model that adds the same noise to its own logits
picks the same token far more often than a greedy one (arXiv 2408.07978).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
MIX_1, MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_GOLDEN, _MIX_1, _MIX_2 = np.uint64(GOLDEN), np.uint64(MIX_1), np.uint64(MIX_2)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
HIGHEST = 37.5  # no noise of 53 bits is above it


def mix(value: int) -> int:
    """splitmix64's finaliser."""
    value = (value ^ (value >> 30)) * MIX_1 & MASK
    value = (value ^ (value >> 27)) * MIX_2 & MASK
    return value ^ (value >> 31)


def gumbel(seed: int, position: int, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    """Standard Gumbel noise for these tokens at this position."""
    base = np.uint64(mix((mix(seed & MASK) + position * GOLDEN) & MASK))
    h = ids.astype(np.uint64)
    h *= _GOLDEN
    h += base
    h ^= h >> _S30
    h *= _MIX_1
    h ^= h >> _S27
    h *= _MIX_2
    h ^= h >> _S31
    uniform = ((h >> _S11).astype(np.float64) + 0.5) * 2.0**-53
    return -np.log(-np.log(uniform))
