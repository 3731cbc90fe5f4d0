"""What a step costs on this machine, given the step before: seconds by number of tokens, context, and change of size.

    seconds = speed * (shape[n tokens] + attention * n * context) + change, when n differs from the step before

What a change costs is in change.py. The shape is measured at a few sizes and refined by every step. Speed follows the
machine's drift within a few steps, and attention is learned as contexts grow: both by a Kalman filter, since a step
shows only their sum. What all sizes have in common goes into these two alone; otherwise sizes that are never tried
would seem cheaper and cheaper, or dearer.

Nothing impossible is believed: n tokens cost at least what fewer do, and at most n plain steps.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median, median_low
from typing import Any

from paceline.files import write_whole
from paceline.planner.change import WARM, ChangeCosts

SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64, 128, 256, 512)
SHAPE_RATE = 0.02
TRUST = 5  # what was measured at first counts like so many steps
STRAY = 0.15  # single steps may bend the shape this far (in logs) from what was measured
SURPRISE = 0.3  # a step is believed to be at most this much slower or quicker than predicted
PER_TOKEN = 0.3  # of a first token's cost, before anything is known: between a GPU's and a slow CPU's
REBUILD_EVERY = 16
SLIGHT = 0.1  # of a plain step: changing that costs less is not planned for
CALM = 0.15  # relative spread of measurements above which they are repeated


class Drift:
    """How much slower than measured everything is at the moment, and what a thousand tokens of context cost each
    token, as a share of a lone token's step. A Kalman filter of two states that wander."""

    PRIOR_ATTENTION = 0.2  # a CPU's
    PRIOR_QUICK = 0.02  # where a change of size costs time: a GPU's
    UNSURE = (0.05**2, 0.3**2)  # variances at first, and never more
    WANDER = (0.02**2, 0.004**2)  # variances that a step adds
    NOISE = 0.1**2

    def __init__(self, attention: float | None = None) -> None:
        self.speed = 1.0
        self.attention = self.PRIOR_ATTENTION if attention is None else attention
        self.is_new = attention is None
        self._p = [self.UNSURE[0], 0.0, self.UNSURE[1] * (1.0 if attention is None else 0.1)]

    def learn(self, looking: float, ratio: float) -> None:
        """A step whose looking back weighs `looking` of its shape took `ratio` times what the shape says."""
        expected = self.speed * (1 + self.attention * looking)
        off = max(-SURPRISE, min(SURPRISE, ratio / expected - 1))
        h1, h2 = (1 + self.attention * looking) / expected, self.speed * looking / expected
        p11, p12, p22 = self._p
        p11 = min(p11 + self.WANDER[0], self.UNSURE[0])
        p22 = min(p22 + self.WANDER[1], self.UNSURE[1])
        g1, g2 = p11 * h1 + p12 * h2, p12 * h1 + p22 * h2
        total = h1 * g1 + h2 * g2 + self.NOISE
        self.speed = max(0.02, self.speed + g1 / total * off)
        self.attention = max(0.0, self.attention + g2 / total * off)
        self._p = [p11 - g1 * g1 / total, p12 - g1 * g2 / total, p22 - g2 * g2 / total]


class CostCurve:
    """Monotone, robust, forgetful. `observe` what happened, `predict` what would.

    `spread` tells how far measurements of one size were apart; not measured here, it is infinite. `price` is what
    changing back to plain steps costs in all, where that is worth planning for; else 0.
    """

    def __init__(
        self,
        seconds: Mapping[int, float] | None = None,
        attention: float | None = None,
        change: ChangeCosts | None = None,
    ) -> None:
        self._logs: dict[int, float] = {n: math.log(s) for n, s in (seconds or {}).items() if s > 0}
        self._measured = dict(self._logs)
        self.drift = Drift(attention)
        self.change = change or ChangeCosts()
        self.spread = math.inf
        self.last = 0
        self._age = 0
        self._n_observed = 0
        self._n_seen: dict[int, int] = {}
        self.price = 0.0
        self._table: list[float] = []
        self._rebuild()

    @property
    def known(self) -> bool:
        return bool(self._logs)

    @property
    def is_calm(self) -> bool:
        """Whether the measurements agree with each other."""
        return self.spread < CALM

    def predict(self, n: int, n_context: float = 0.0) -> float:
        """Seconds for a batch of n tokens, each of which looks back on `n_context`, after others of its size."""
        if n <= 0:
            return 0.0
        table, drift = self._table, self.drift
        shape = table[n] if n < len(table) else self._shape(n)
        return drift.speed * (shape + drift.attention * table[1] * n * n_context / 1000)

    def changing(self, n: int) -> float:
        """What a batch of n tokens takes longer because of the step before."""
        return self.change.at(n, self._age_of(n))

    def _age_of(self, n: int) -> int:
        """For how many steps, up to WARM, batches have had this size."""
        return self._age if n == self.last else 0

    def _shape(self, n: int) -> float:
        last = len(self._table) - 1
        if n <= last:
            return self._table[n]
        return self._table[last] + (self._table[last] - self._table[last - 1]) * (n - last)

    def passed(self, n: int) -> None:
        """A batch of n tokens was computed."""
        self._age = min(WARM, self._age_of(n) + 1)
        self.last = n

    def observe(self, n: int, seconds: float, n_context: float = 0.0) -> float:
        """A batch of n tokens took this long; returns what had been predicted."""
        age, extra = self._age_of(n), self.changing(n)
        predicted = self.predict(n, n_context) + extra
        self.passed(n)
        if n <= 0 or seconds <= 0:
            return predicted
        if not self._logs:
            self.learn({1: seconds / (1 + PER_TOKEN * (n - 1))})
            return predicted
        off = math.log(seconds / predicted)
        if age < WARM and self.price:
            self.change.learn(n, age, seconds - predicted + extra)
        if age == WARM or not self.price:  # where changing costs something, only steps after it tell the shape
            self._learn_step(n, seconds - extra, n_context, off)
        return predicted

    def _learn_step(self, n: int, seconds: float, n_context: float, off: float) -> None:
        shape = self._shape(n)
        self.drift.learn(self._table[1] * n * n_context / 1000 / shape, seconds / shape)
        if abs(off) < SURPRISE:  # more says something of the machine, not of the shape
            self._bend(n, off)
        self._n_observed += 1
        if self._n_observed % REBUILD_EVERY == 0:
            self._rebuild()

    def _bend(self, n: int, off: float) -> None:
        """Move the shape at the nearest size, where little was seen quicker."""
        at = bisect_left(SIZES, n)
        size = SIZES[min(at, len(SIZES) - 1)]
        if at and at < len(SIZES) and n - SIZES[at - 1] < SIZES[at] - n:
            size = SIZES[at - 1]
        if size not in self._logs:
            self._logs[size] = self._measured[size] = math.log(self._shape(size))
        self._n_seen[size] = self._n_seen.get(size, 0) + 1
        near = self._measured[size]
        bent = self._logs[size] + off * max(SHAPE_RATE, 1 / (TRUST + self._n_seen[size]))
        self._logs[size] = max(near - STRAY, min(near + STRAY, bent))

    def learn(self, measured: Mapping[int, float], change: ChangeCosts | None = None, spread: float = math.inf) -> None:
        """Measurements on an empty context set the scale. They take the place of a shape that was no surer, and meet
        one that was sure too halfway; a calm shape is kept where they are not."""
        logs = {n: math.log(seconds) for n, seconds in measured.items() if seconds > 0}
        if self._logs and logs:
            scale = median(log - math.log(self._shape(n)) for n, log in logs.items())
            old = {n: log + scale for n, log in self._logs.items()}
            new = spread < CALM or not self.is_calm
            share = 0.0 if not new else 0.5 if self.is_calm else 1.0
            logs = old | {n: share * log + (1 - share) * old.get(n, log) for n, log in logs.items()}
        if change is not None and (spread < CALM or not self.is_calm):
            self.change = change
        self.spread = min(self.spread, spread)
        self._logs, self._measured = dict(logs), dict(logs)
        self.drift.speed = 1.0
        self._rebuild()
        if self.drift.is_new and self.price:
            self.drift.attention = self.drift.PRIOR_QUICK
        self.drift.is_new = False

    def _rebuild(self) -> None:
        """The table of the shape, and what a change costs against it."""
        self._table = self._tabulated()
        total = self.change.whole(1)
        self.price = total if total > SLIGHT * self._table[1] else 0.0

    def _tabulated(self) -> list[float]:
        """Straight lines between sizes, never falling, never impossible."""
        known = sorted(self._logs)
        if not known:
            return [0.0] + [1 + PER_TOKEN * n for n in range(64)]
        values = [math.exp(log) for log in never_falling([self._logs[n] for n in known])]
        values = [min(value, values[0] * n / known[0]) for n, value in zip(known, values, strict=True)]
        table = [0.0]
        table += [values[0]] * known[0]
        for (a, b), (x, y) in zip(pairwise(known), pairwise(values), strict=True):
            table += [x + (y - x) * (n - a) / (b - a) for n in range(a + 1, b + 1)]
        if len(known) == 1:
            table += [values[0] * (1 + PER_TOKEN * n) for n in range(1, 64)]
        return table

    @property
    def sizes(self) -> dict[int, float]:
        """Seconds by size on an empty context."""
        return {n: self._shape(n) * self.drift.speed for n in sorted(self._logs)}

    # -- kept between runs

    @classmethod
    def load(cls, path: Path, about: Mapping[str, Any]) -> CostCurve:
        """What an earlier run learned of the same things; anything else counts as nothing."""
        try:
            data = json.loads(path.read_text())
            seconds = {int(n): float(s) for n, s in data["seconds"].items()}
            if data["about"] != about or not is_possible(seconds):
                return cls()
            change = ChangeCosts({int(n): [float(s) for s in found] for n, found in data["change"].items()})
            curve = cls(seconds, min(10.0, max(0.0, float(data["attention"]))), change)
            curve.spread = float(data["spread"]) or math.inf  # of nothing: measured once
            return curve
        except (OSError, ValueError, AttributeError, TypeError, KeyError):
            return cls()

    def save(self, path: Path, about: Mapping[str, Any]) -> None:
        """A doubtful curve is not kept; a cache that cannot be written is no trouble."""
        if not (self.known and self.is_calm):
            return
        data = {
            "about": dict(about),
            "seconds": self.sizes,
            "attention": self.drift.attention,
            "change": self.change.by_size,
            "spread": self.spread,
        }
        with suppress(OSError):
            write_whole(path, json.dumps(data).encode())


def is_possible(seconds: Mapping[int, float]) -> bool:
    """Whether these can be true: n tokens cost at most n plain steps and never less than one, give or take noise."""
    plain = seconds.get(1, 0.0)
    return plain > 0 and all(n > 0 and plain / (1 + CALM) <= s <= n * plain * (1 + CALM) for n, s in seconds.items())


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
