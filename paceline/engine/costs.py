"""What a step costs on this machine: seconds by number of tokens in the batch and the context they look back on.

    seconds = pace * (shape[n tokens] + attention * n * context)

The shape is measured at a few sizes and refined by every step. Pace follows the machine's mood within a few steps, and
attention is learned as contexts grow: both by a Kalman filter, since a step shows only their sum. One odd slow step
hardly moves them. What all sizes have in common goes into these two alone; otherwise sizes that are never tried would
seem cheaper and cheaper, or dearer. For the same reason the shape stays near what was measured.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median, median_low

SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64, 128, 256, 512)
SHAPE_RATE = 0.02
TRUST = 5  # what was measured at first counts like so many steps
GROWTH = 0.7  # of the growth measured from one size to the next, at least, whatever single steps seem to say
STRAY = 0.15  # the shape may stray this far (in logs) from what was measured
SURPRISE = 0.3  # a step is believed to be at most this much slower or quicker than predicted
PER_TOKEN = 0.3  # of a first token's cost, before anything is known: between a GPU's and a slow CPU's
REBUILD_EVERY = 16
ATTENTION = "attention"


class Pace:
    """How much slower than measured everything is at the moment, and what a thousand tokens of context cost each
    token, as a share of a lone token's step. A Kalman filter of two states that wander."""

    FIRST_ATTENTION = 0.2
    UNSURE = (0.05**2, 0.3**2)  # variances at first, and never more
    WANDER = (0.02**2, 0.004**2)  # variances that a step adds
    NOISE = 0.1**2

    def __init__(self, attention: float | None = None) -> None:
        self.value = 1.0
        self.attention = self.FIRST_ATTENTION if attention is None else attention
        self._p = [self.UNSURE[0], 0.0, self.UNSURE[1] * (1.0 if attention is None else 0.1)]

    def predict(self, looking: float) -> float:
        """Slower than the shape by so much, for tokens whose looking back weighs `looking` of the shape."""
        return self.value * (1 + self.attention * looking)

    def learn(self, looking: float, ratio: float) -> None:
        """A step took `ratio` times what the shape says."""
        expected = self.predict(looking)
        off = max(-SURPRISE, min(SURPRISE, ratio / expected - 1))
        h1, h2 = (1 + self.attention * looking) / expected, self.value * looking / expected
        p11, p12, p22 = self._p
        p11 = min(p11 + self.WANDER[0], self.UNSURE[0])
        p22 = min(p22 + self.WANDER[1], self.UNSURE[1])
        g1, g2 = p11 * h1 + p12 * h2, p12 * h1 + p22 * h2
        total = h1 * g1 + h2 * g2 + self.NOISE
        self.value = max(0.02, self.value + g1 / total * off)
        self.attention = max(0.0, self.attention + g2 / total * off)
        self._p = [p11 - g1 * g1 / total, p12 - g1 * g2 / total, p22 - g2 * g2 / total]

    def reset(self) -> None:
        """A careful measurement has just set the shape."""
        self.value = 1.0


class CostCurve:
    """Monotone, robust, forgetful. `observe` what happened, `predict` what would."""

    def __init__(self, seconds: Mapping[int, float] | None = None, attention: float | None = None) -> None:
        self._logs: dict[int, float] = {n: math.log(s) for n, s in (seconds or {}).items() if s > 0}
        self._measured = dict(self._logs)
        self._pace = Pace(attention)
        self._n_observed = 0
        self._n_seen: dict[int, int] = {}
        self._table: list[float] = []
        self._rebuild()

    @property
    def known(self) -> bool:
        return bool(self._logs)

    def predict(self, n: int, n_context: float = 0.0) -> float:
        """Seconds for a batch of n tokens, each of which looks back on `n_context`."""
        if n <= 0:
            return 0.0
        table, pace = self._table, self._pace
        shape = table[n] if n < len(table) else self._shape(n)
        return pace.value * (shape + pace.attention * table[1] * n * n_context / 1000)

    def _shape(self, n: int) -> float:
        last = len(self._table) - 1
        if n <= last:
            return self._table[n]
        return self._table[last] + (self._table[last] - self._table[last - 1]) * (n - last)

    def _looking(self, n: int, n_context: float, shape: float) -> float:
        return self._table[1] * n * n_context / 1000 / shape

    def observe(self, n: int, seconds: float, n_context: float = 0.0) -> float:
        """A batch of n tokens took this long; returns what had been predicted."""
        predicted = self.predict(n, n_context)
        if n <= 0 or seconds <= 0:
            return predicted
        if not self._logs:
            self.learn({1: seconds / (1 + PER_TOKEN * (n - 1))})
            return predicted
        shape = self._shape(n)
        off = math.log(seconds / predicted)
        self._pace.learn(self._looking(n, n_context, shape), seconds / shape)
        if abs(off) < SURPRISE:  # more says something of the machine, not of the shape
            self._bend(n, off)
        self._n_observed += 1
        if self._n_observed % REBUILD_EVERY == 0:
            self._rebuild()
        return predicted

    def _bend(self, n: int, off: float) -> None:
        """Move the shape at the nearest size, where little was seen quicker."""
        at = bisect_left(SIZES, n)
        size = SIZES[min(at, len(SIZES) - 1)]
        if at and at < len(SIZES) and n - SIZES[at - 1] < SIZES[at] - n:
            size = SIZES[at - 1]
        if size not in self._logs:
            self._logs[size] = self._measured[size] = math.log(self._shape(size))
        near = self._measured[size]
        self._n_seen[size] = self._n_seen.get(size, 0) + 1
        by = off * max(SHAPE_RATE, 1 / (TRUST + self._n_seen[size]))
        self._logs[size] = max(near - STRAY, min(near + STRAY, self._logs[size] + by))

    def learn(self, measured: Mapping[int, float]) -> None:
        """Careful measurements on an empty context: they set the scale, and meet an older shape halfway. Either may
        have been disturbed."""
        logs = {n: math.log(seconds) for n, seconds in measured.items() if seconds > 0}
        if self._logs:
            scale = median(log - math.log(self._shape(n)) for n, log in logs.items())
            old = {n: log + scale for n, log in self._logs.items()}
            logs = old | {n: (log + old.get(n, log)) / 2 for n, log in logs.items()}
        self._logs, self._measured = dict(logs), dict(logs)
        self._pace.reset()
        self._rebuild()

    def _rebuild(self) -> None:
        """The table of the shape: straight lines between sizes, growing nearly as fast as was measured."""
        known = sorted(self._logs)
        if not known:
            self._table = [0.0] + [1 + PER_TOKEN * n for n in range(64)]
            return
        values = [math.exp(log) for log in never_falling([self._logs[n] for n in known])]
        measured = never_falling([self._measured[n] for n in known])
        for i in range(1, len(values)):
            growth = math.exp(measured[i] - measured[i - 1]) - 1
            values[i] = max(values[i], values[i - 1] * (1 + GROWTH * growth))
        table = [0.0]
        table += [values[0]] * known[0]
        for (a, b), (x, y) in zip(pairwise(known), pairwise(values), strict=True):
            table += [x + (y - x) * (n - a) / (b - a) for n in range(a + 1, b + 1)]
        if len(known) == 1:
            table += [values[0] * (1 + PER_TOKEN * n) for n in range(1, 64)]
        self._table = table

    @property
    def sizes(self) -> dict[int, float]:
        """Seconds by size on an empty context."""
        return {n: math.exp(log) * self._pace.value for n, log in sorted(self._logs.items())}

    @property
    def attention(self) -> float:
        """What a thousand tokens of context add to each token, as a share of a lone token's step."""
        return self._pace.attention

    # -- kept between runs

    @classmethod
    def load(cls, path: Path) -> CostCurve:
        """What an earlier run learned; an unreadable file counts as none."""
        try:
            data = json.loads(path.read_text())
            attention = min(10.0, max(0.0, float(data.pop(ATTENTION))))
            return cls({int(n): float(s) for n, s in data.items() if 1e-7 < float(s) < 1e4}, attention)
        except (OSError, ValueError, AttributeError, TypeError, KeyError):
            return cls()

    def save(self, path: Path) -> None:
        """Written aside, then renamed. A cache that cannot be written is no trouble."""
        part = path.with_suffix(".part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps({**self.sizes, ATTENTION: self.attention}))
            part.replace(path)
        except OSError:
            part.unlink(missing_ok=True)


def never_falling(values: Sequence[float]) -> list[float]:
    """A near sequence that never falls: where one does, the values in question become their median, the lower of two.
    What disturbs a measurement makes it slower."""
    pools: list[list[float]] = []
    for value in values:
        pool = [value]
        while pools and median_low(pools[-1]) > median_low(pool):
            pool = pools.pop() + pool
        pools.append(pool)
    return [median_low(pool) for pool in pools for _ in pool]
