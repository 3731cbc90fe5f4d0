"""Measuring a context's cost curve: before the first request in a second at most, and again while nobody waits.

Each size is computed three times in a row. The third tells what it costs, the first two what the change to it adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from statistics import median, quantiles
from time import perf_counter
from typing import Protocol

from paceline.llama.context import Batch
from paceline.llama.lib import Floats
from paceline.planner.change import WARM, ChangeCosts
from paceline.planner.costs import CostCurve

TOKEN = 1
SIZES = (1, 2, 4, 8, 16, 32)
LARGER = (64,)  # where a change of size costs time, as on a GPU, which loads its kernels when it is first met
BETWEEN = (3, 5, 6, 12)  # where it does not: a CPU's kernels make some of these dearer than their neighbours say
FELT = (0.4, 0.1)  # of a plain step: what a change must cost the first or the second step to be more than that
MOST_OF = 0.8  # of all measurements must say so
READ, READ_S, N_READ = (32, 16, 8), 0.1, 3  # tokens that are read to see what that takes; seconds at most; how often
N_IDLE = 3  # rounds of a measurement between requests
Place = Callable[[], tuple[int, int]]  # a sequence to measure after, and how long it is
Runs = list[float]  # seconds of one size, several times in a row


class Computes(Protocol):
    """What of a context measuring needs."""

    n_batch: int
    n_ctx_seq: int

    def new_batch(self) -> Batch: ...
    def decode(self, batch: Batch) -> Floats: ...
    def remove(self, seq: int, start: int, end: int = -1) -> bool: ...


def warm_up(context: Computes, curve: CostCurve, seconds: float) -> None:
    """Measure sizes in turn until the time is up; of a slow model only those that fit."""
    measurement = Measurement(context, curve)
    timer = measurement.timer
    timer.take(1)
    plain = timer.take(1)
    curve.passed(1)
    until = perf_counter() + seconds
    while True:
        n_rounds = len(measurement.rounds)
        for n in measurement.sizes:
            if perf_counter() + n * plain > until and (n_rounds or n > SIZES[1]):
                break
            measurement.take(n)
        else:
            measurement.end_round()
            continue
        break
    measurement.conclude()
    if curve.price:
        for _ in measurement.pieces(lambda: (0, 0)):
            pass


def reading_share(context: Computes, curve: CostCurve) -> float:
    """What a token that is only read takes, of one whose logits are wanted. Both take turns, since the machine has its
    moods. Not measured where that would take long: then logits are a small part, too."""
    timer = Timer(context)
    fitting = [n for n in READ if n <= min(context.n_batch, context.n_ctx_seq - 1) and curve.predict(n) < READ_S]
    if not fitting:
        return 1.0
    return min(1.0, median(timer.read(fitting[0]) / timer.take(fitting[0]) for _ in range(N_READ)))


class Measurement:
    """Runs of every size, round by round, until they are taken over into the curve."""

    def __init__(self, context: Computes, curve: CostCurve) -> None:
        self.timer = Timer(context)
        self.curve = curve
        self.rounds: list[dict[int, Runs]] = []
        self._n_most = min(context.n_batch, context.n_ctx_seq - 1)
        self._n_ctx_seq = context.n_ctx_seq
        self._round: dict[int, Runs] = {}

    @property
    def sizes(self) -> list[int]:
        """In the order in which they are measured. Those in between come from the second round on, when it is known
        whether a change costs anything, and early then: of the others something is known."""
        is_known = self.curve.known or (self.rounds and not changes(self.rounds).whole(1))
        between, larger = ((), LARGER) if self.curve.price else (BETWEEN if is_known else (), ())
        return [n for n in (1, *between, *SIZES[1:], *larger) if n <= self._n_most]

    def take(self, n: int, seq: int = 0, position: int = 0) -> None:
        """Without what looking back on the text before it costs."""
        if self.curve.last == n and len(self.sizes) > 1:
            self.timer.take(2 if n == 1 else 1, seq, position)  # or there would be no change to feel
        looking = self.curve.predict(n, position) - self.curve.predict(n) if self.curve.known else 0.0
        times = [self.timer.take(n, seq, position) for _ in range(1 + WARM)]
        self._round[n] = [max(seconds - looking, seconds / 2) for seconds in times]
        self.curve.passed(n)

    def end_round(self) -> None:
        if self._round:
            self.rounds.append(self._round)
        self._round = {}

    def conclude(self) -> None:
        """The curve learns what was found."""
        self.end_round()
        if self.rounds:
            change = changes(self.rounds)
            found, spread = typical(self.rounds, skip=WARM if any(map(sum, change.by_size.values())) else 0)
            self.curve.learn(found, change, spread)
        self.rounds = []

    def pieces(self, place: Place) -> Iterator[None]:
        """A measurement in small pieces, after a text that stays as it is."""
        for _ in range(N_IDLE):
            for n in self.sizes:
                seq, position = place()
                if position + n < self._n_ctx_seq:
                    self.take(n, seq, position)
                    yield
            self.end_round()
        self.conclude()


class IdleMeasuring:
    """Measures again while nobody waits: after the 1st, 2nd, 4th, 8th ... request, and after every one until the
    measurements agree. A machine that was busy at the start, or a bad file, is found out so.

    Where a change of size costs time only until they agree: on an H200 steps for eight slots took 5 % longer after a
    measurement in their context, until a long prompt came."""

    def __init__(self, measurements: Sequence[tuple[Measurement, Place]]) -> None:
        self._measurements = measurements
        self._due = 1
        self._n_last = 0
        self._pieces: Iterator[None] = iter(())

    def turn(self, n_finished: int) -> bool:
        """One piece, if there is one to do after so many requests; says whether there is more."""
        if next(self._pieces, self) is not self:
            return True
        if n_finished == self._n_last:
            return False
        self._n_last = n_finished
        due = n_finished >= self._due
        self._due = 2 * n_finished if due else self._due
        wanted = [
            (each, place)
            for each, place in self._measurements
            if not each.curve.is_calm or (due and not each.curve.price)
        ]
        self._pieces = chain.from_iterable(each.pieces(place) for each, place in wanted)
        return bool(wanted)


def changes(rounds: Sequence[dict[int, Runs]]) -> ChangeCosts:
    """What the first and the second step of a size take longer than the third: the lower quartile, since meeting a size
    for the first time costs more than ever again. Nothing where it is mere noise, or no more than building the graph
    anew: on a CPU the first step takes longer by a tenth of a plain one, which nothing is gained by planning for."""
    plain = min(found[WARM] for each in rounds for found in each.values())
    extra: dict[int, list[list[float]]] = {}
    for each in rounds:
        for n, found in each.items():
            extra.setdefault(n, []).append([found[age] - found[WARM] for age in range(WARM)])
    columns = zip(FELT, zip(*chain.from_iterable(extra.values()), strict=True), strict=True)
    if not any(sum(e > least * plain for e in column) > MOST_OF * len(column) for least, column in columns):
        return ChangeCosts()
    return ChangeCosts({n: [lower(column) for column in zip(*found, strict=True)] for n, found in extra.items()})


def lower(found: Sequence[float]) -> float:
    """The lower quartile, of few the least; never under nothing."""
    return max(0.0, quantiles(found)[0] if len(found) > WARM else min(found))


def typical(rounds: Sequence[dict[int, Runs]], skip: int) -> tuple[dict[int, float], float]:
    """The median of each size, as if the machine had been equally quick in all rounds: it has its speeds. And how far
    single measurements are from it: half are farther. What was measured once says nothing of that."""
    logs = [{n: [math.log(s) for s in runs[skip:]] for n, runs in each.items()} for each in rounds]
    common = set.intersection(*(set(each) for each in logs))
    speeds = [median(x for n in common for x in each[n]) for each in logs]
    usual = median(speeds)
    by_size: dict[int, list[float]] = {}
    for each, speed in zip(logs, speeds, strict=True):
        for n, found in each.items():
            by_size.setdefault(n, []).extend(x - speed + usual for x in found)
    middle = {n: median(found) for n, found in by_size.items()}
    apart = [abs(x - middle[n]) for n, found in by_size.items() if len(found) > 1 for x in found]
    return {n: math.exp(log) for n, log in middle.items()}, median(apart) if apart else math.inf


class Timer:
    """Times batches of n tokens after a sequence, which it leaves as it was."""

    def __init__(self, context: Computes) -> None:
        self._context = context
        self._batch = context.new_batch()

    def take(self, n: int, seq: int = 0, position: int = 0) -> float:
        return self._take(n, seq, position, n)

    def read(self, n: int) -> float:
        """Without logits."""
        return self._take(n, 0, 0, 0)

    def _take(self, n: int, seq: int, position: int, n_outputs: int) -> float:
        self._batch.clear()
        self._batch.add(seq, [TOKEN] * n, position, n_outputs)
        start = perf_counter()
        logits = self._context.decode(self._batch)
        if n_outputs:
            logits[0].argmax()
        seconds = perf_counter() - start
        self._context.remove(seq, position)
        return seconds
