"""From a drafter's raw confidence to the chance that its token is accepted, learned from how the text went on.

Counts by confidence, old ones forgotten; where little was seen the raw confidence counts. A slot's own bias says how
much better or worse a drafter does on its text than on everybody's: one slot does not spoil it for the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

N_BINS = 20
PRIOR = 6.0  # raw confidence counts like this many observations
MEMORY = 0.998  # of a bin's counts, per observation in it
BIAS_RATE = 0.03
BIAS_MOST = 3.0
BIAS_MEMORY = 0.995
LEAST, MOST = 0.005, 0.995


def odds_log(p: float) -> float:
    return math.log(p / (1 - p))


def from_odds_log(x: float) -> float:
    return 1 / (1 + math.exp(-x))


class Calibration:
    """One drafter's record. Bound: two counts per bin."""

    def __init__(self) -> None:
        self._hits = [0.0] * N_BINS
        self._seen = [0.0] * N_BINS
        self._table = [self._chance(i) for i in range(N_BINS)]
        self.mean = 0.5
        self.n_seen = 0

    def chance(self, confidence: float, bias: float = 0.0) -> float:
        p = self._table[min(int(confidence * N_BINS), N_BINS - 1)]
        return p if not bias else from_odds_log(odds_log(p) + bias)

    def chances(self, confidence: Sequence[float], bias: float = 0.0) -> list[float]:
        return [self.chance(value, bias) for value in confidence]

    def learn(self, confidence: Sequence[float], n_right: int, n_shown: int) -> None:
        """Of these tokens the text showed the first `n_shown`; `n_right` of them were right."""
        for value in confidence[:n_right]:
            self._count(value, 1.0)
        if n_right < min(n_shown, len(confidence)):
            self._count(confidence[n_right], 0.0)

    def _count(self, confidence: float, right: float) -> None:
        i = min(int(confidence * N_BINS), N_BINS - 1)
        self._hits[i] = MEMORY * self._hits[i] + right
        self._seen[i] = MEMORY * self._seen[i] + 1
        self._table[i] = self._chance(i)
        self.mean += 0.02 * (right - self.mean)
        self.n_seen += 1

    def _chance(self, i: int) -> float:
        raw = (i + 0.5) / N_BINS
        p = (self._hits[i] + PRIOR * raw) / (self._seen[i] + PRIOR)
        return max(LEAST, min(MOST, p))


class Bias:
    """How one slot's text differs: a shift of the log-odds, drawn back to none."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def learn(self, chances: Sequence[float], n_right: int, n_shown: int) -> None:
        for p in chances[:n_right]:
            self._move(1 - p)
        if n_right < min(n_shown, len(chances)):
            self._move(-chances[n_right])

    def _move(self, by: float) -> None:
        value = BIAS_MEMORY * self.value + BIAS_RATE * by
        self.value = max(-BIAS_MOST, min(BIAS_MOST, value))
