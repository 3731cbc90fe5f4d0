"""What a step costs on this machine: seconds by number of tokens in the batch. Knows clocks, not what was computed.

The curve is a shape (measured at a few sizes, refined by every step) times a scale (which follows the machine's mood
and the growing context within a few steps). One odd slow step hardly moves it. What all sizes have in common goes into
the scale alone; otherwise sizes that are never tried would seem cheaper and cheaper, or dearer. For the same reason
the shape stays near what was measured.
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
SCALE_RATE = 0.1
SHAPE_RATE = 0.04
COMMON_RATE = 0.05
GROWTH = 0.7  # of the growth measured from one size to the next, at least, whatever single steps seem to say
STRAY = 0.25  # the shape may stray this far (in logs) from what was measured
SURPRISE = 0.3  # a step is believed to be at most this much (in logs) slower or quicker than predicted
PER_TOKEN = 0.3  # of a first token's cost, before anything is known: between a GPU's and a slow CPU's
REBUILD_EVERY = 16


class CostCurve:
    """Monotone, robust, forgetful. `observe` what happened, `predict` what would."""

    def __init__(self, seconds: Mapping[int, float] | None = None) -> None:
        self._logs: dict[int, float] = {n: math.log(s) for n, s in (seconds or {}).items() if s > 0}
        self._measured = dict(self._logs)
        self._scale = 1.0
        self._common = 0.0
        self._n_observed = 0
        self._table: list[float] = []
        self._rebuild()

    @property
    def known(self) -> bool:
        return bool(self._logs)

    def predict(self, n: int) -> float:
        """Seconds for a batch of n tokens."""
        if n <= 0:
            return 0.0
        last = len(self._table) - 1
        if n <= last:
            return self._scale * self._table[n]
        slope = self._table[last] - self._table[last - 1]
        return self._scale * (self._table[last] + slope * (n - last))

    def observe(self, n: int, seconds: float) -> None:
        """A batch of n tokens took this long."""
        if n <= 0 or seconds <= 0:
            return
        if not self._logs:
            self.learn({1: seconds / (1 + PER_TOKEN * (n - 1))})
            return
        off = math.log(seconds / self.predict(n))
        off = max(-SURPRISE, min(SURPRISE, off))
        self._scale *= math.exp(SCALE_RATE * off)
        self._common += COMMON_RATE * (off - self._common)
        self._bend(n, SHAPE_RATE * (off - self._common))
        self._n_observed += 1
        if self._n_observed % REBUILD_EVERY == 0:
            self._rebuild()

    def _bend(self, n: int, by: float) -> None:
        """Move the shape at the nearest size."""
        at = bisect_left(SIZES, n)
        size = SIZES[min(at, len(SIZES) - 1)]
        if at and at < len(SIZES) and n - SIZES[at - 1] < SIZES[at] - n:
            size = SIZES[at - 1]
        if size not in self._logs:
            self._logs[size] = self._measured[size] = math.log(self.predict(size) / self._scale)
        near = self._measured[size]
        self._logs[size] = max(near - STRAY, min(near + STRAY, self._logs[size] + by))

    def learn(self, measured: Mapping[int, float]) -> None:
        """Careful measurements: they set the scale, and meet an older shape halfway. Either may have been disturbed."""
        logs = {n: math.log(seconds) for n, seconds in measured.items() if seconds > 0}
        if self._logs:
            off = {n: log - math.log(self.predict(n)) for n, log in logs.items()}
            self._scale *= math.exp(median(off.values()))
            logs = {n: log - math.log(self._scale) for n, log in logs.items()}
            logs = {n: (log + self._logs.get(n, log)) / 2 for n, log in logs.items()}
        self._logs |= logs
        self._measured = dict(self._logs)
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

    def as_dict(self) -> dict[str, float]:
        return {str(n): math.exp(log) * self._scale for n, log in sorted(self._logs.items())}

    # -- kept between runs

    @classmethod
    def load(cls, path: Path) -> CostCurve:
        """What an earlier run learned; an unreadable file counts as none."""
        try:
            data = json.loads(path.read_text())
            return cls({int(n): float(s) for n, s in data.items() if 1e-7 < float(s) < 1e4})
        except (OSError, ValueError, AttributeError, TypeError):
            return cls()

    def save(self, path: Path) -> None:
        """Written aside, then renamed. A cache that cannot be written is no trouble."""
        part = path.with_suffix(".part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(self.as_dict()))
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
