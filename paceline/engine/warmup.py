"""Measuring a context's cost curve before the first request, in a second at most."""

from __future__ import annotations

from time import perf_counter
from typing import Protocol

from paceline.engine.costs import CostCurve
from paceline.llama.context import Batch
from paceline.llama.lib import Floats

TOKEN = 1
SIZES = (1, 2, 4, 6, 8, 16)  # few, so that there is time to measure each several times


class Computes(Protocol):
    """What of a context measuring needs."""

    n_batch: int
    n_ctx_seq: int

    def new_batch(self) -> Batch: ...
    def decode(self, batch: Batch) -> Floats: ...
    def remove(self, seq: int, start: int, end: int = -1) -> bool: ...


def warm_up(context: Computes, curve: CostCurve, seconds: float) -> None:
    """Measure all sizes in turn until the time is up. The quickest of each counts: other programs only ever make a step
    slower, on a shared machine every tenth or so by half."""
    sizes = [n for n in SIZES if n <= min(context.n_batch, context.n_ctx_seq - 1)]
    timer = Timer(context)
    timer.take(2)
    until = perf_counter() + seconds
    best: dict[int, float] = {}
    while sizes:
        for n in sizes:
            expected = best.get(n) or n * best.get(1, 0.0)
            if best and perf_counter() + expected > until:
                curve.learn(best)
                return
            best[n] = min(best.get(n, float("inf")), timer.take(n))


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
