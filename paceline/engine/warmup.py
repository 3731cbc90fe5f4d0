"""Measuring a context's cost curve before the first request, in a second at most."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean, median
from time import perf_counter
from typing import Protocol

from paceline.engine.costs import CostCurve
from paceline.llama.context import Batch
from paceline.llama.lib import Floats

TOKEN = 1
SIZES = (1, 2, 4, 8)  # few, so that there is time to measure each several times
SELDOM = (6, 16)  # in every third round
EVERY = 3


class Computes(Protocol):
    """What of a context measuring needs."""

    n_batch: int
    n_ctx_seq: int

    def new_batch(self) -> Batch: ...
    def decode(self, batch: Batch) -> Floats: ...
    def remove(self, seq: int, start: int, end: int = -1) -> bool: ...


def warm_up(context: Computes, curve: CostCurve, seconds: float) -> None:
    """Measure sizes in turn until the time is up; of a slow model only those that fit."""
    sizes = sorted(n for n in SIZES + SELDOM if n <= min(context.n_batch, context.n_ctx_seq - 1))
    if not sizes:
        return
    timer = Timer(context)
    timer.take(2)
    until = perf_counter() + seconds
    first: dict[int, float] = {}
    for n in sizes:
        if not first or perf_counter() + n * first[1] < until:
            first[n] = timer.take(n)
    often = [n for n in first if n in SIZES]
    rounds = [first]
    while perf_counter() + sum(first[n] for n in often) < until:
        rounds.append({n: timer.take(n) for n in (often if len(rounds) % EVERY else first)})
    curve.learn(typical(rounds, often))


def typical(rounds: Sequence[Mapping[int, float]], often: Sequence[int]) -> dict[int, float]:
    """The median of each size, as if the machine had been equally quick in all rounds: it has its moods, on a shared
    machine every tenth step or so takes half as long again, and some sizes are measured seldom."""
    moods = [mean(math.log(found[n]) for n in often) for found in rounds]
    usual = median(moods)
    logs = {n: [math.log(f[n]) - mood for f, mood in zip(rounds, moods, strict=True) if n in f] for n in rounds[0]}
    return {n: math.exp(usual + median(found)) for n, found in logs.items()}


class Timer:
    """Times batches of n tokens on an empty sequence, which it leaves empty."""

    def __init__(self, context: Computes) -> None:
        self._context = context
        self._batch = context.new_batch()

    def take(self, n: int) -> float:
        self._batch.clear()
        self._batch.add(0, [TOKEN] * n, 0, n)
        start = perf_counter()
        self._context.decode(self._batch)[0].argmax()
        seconds = perf_counter() - start
        self._context.remove(0, 0)
        return seconds
