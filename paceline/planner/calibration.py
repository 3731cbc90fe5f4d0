"""From a drafter's raw confidence to the chance that its token is accepted, learned from how the text went on.

Counts by confidence, old ones forgotten; where little was seen the raw confidence counts, shifted as far as all were
too high or too low: one number, which is known long before every count is. A slot's own bias says how much better or
worse a drafter does on its text than on everybody's: one slot does not spoil it for the others.
"""

from __future__ import annotations

import math

N_BINS = 20
PRIOR_WEIGHT = 12.0  # raw confidence counts like this many observations
MEMORY = 0.998  # of a bin's counts, per observation in it
SURE = (2.0, 50.0)  # of the shift, at first and at most: the inverse of its variance
NEAR = 0.1  # a shift by less does not change the table
BIAS_RATE = 0.1
BIAS_MOST = 3.0
BIAS_MEMORY = 0.995
LEAST, MOST = 0.005, 0.995


def odds_log(p: float) -> float:
    return math.log(p / (1 - p))


def from_odds_log(x: float) -> float:
    return 1 / (1 + math.exp(-x))


class Calibration:
    """One drafter's record. `shift` moves the log-odds of what is believed at first. Bound: two counts per bin."""

    def __init__(self, shift: float = 0.0) -> None:
        self._first = [odds_log((i + 0.5) / N_BINS) + shift for i in range(N_BINS)]
        self._shift = self._shift_in_table = 0.0
        self._sure = SURE[0]
        self._hits = [0.0] * N_BINS
        self._seen = [0.0] * N_BINS
        self._table = [0.0] * N_BINS
        self._odds = [0.0] * N_BINS
        self._update_all()
        self.mean = 0.5
        self.n_seen = 0

    def p_accept(self, confidence: float, bias: float = 0.0) -> float:
        i = min(int(confidence * N_BINS), N_BINS - 1)
        return min(MOST, max(LEAST, from_odds_log(self._odds[i] + bias))) if bias else self._table[i]

    def learn(self, confidence: float, *, right: bool) -> None:
        i = min(int(confidence * N_BINS), N_BINS - 1)
        self._hits[i] = MEMORY * self._hits[i] + right
        self._seen[i] = MEMORY * self._seen[i] + 1
        self._learn_shift(from_odds_log(self._first[i] + self._shift), right=right)
        if abs(self._shift - self._shift_in_table) > NEAR:
            self._update_all()
        else:
            self._update(i)
        self.mean += 0.02 * (right - self.mean)
        self.n_seen += 1

    def _learn_shift(self, chance: float, *, right: bool) -> None:
        """A Bayesian logistic regression of one number, a step at a time."""
        self._shift = max(-BIAS_MOST, min(BIAS_MOST, self._shift + (right - chance) / self._sure))
        self._sure = min(SURE[1], self._sure + chance * (1 - chance))

    def _update_all(self) -> None:
        self._shift_in_table = self._shift
        for i in range(N_BINS):
            self._update(i)

    def _update(self, i: int) -> None:
        first = from_odds_log(self._first[i] + self._shift_in_table)
        p = (self._hits[i] + PRIOR_WEIGHT * first) / (self._seen[i] + PRIOR_WEIGHT)
        self._table[i] = p = max(LEAST, min(MOST, p))
        self._odds[i] = odds_log(p)


class Bias:
    """How one slot's text differs: a shift of the log-odds, drawn back to none."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def learn(self, chance: float, *, right: bool) -> None:
        """A token believed in with this chance turned out right, or wrong."""
        value = BIAS_MEMORY * self.value + BIAS_RATE * (right - chance)
        self.value = max(-BIAS_MOST, min(BIAS_MOST, value))
