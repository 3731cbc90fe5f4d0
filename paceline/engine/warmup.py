"""Measuring a context's cost curve before the first request, in a second at most."""

from __future__ import annotations

from time import perf_counter
from typing import Protocol

from paceline.engine.costs import SIZES, CostCurve
from paceline.llama.context import Batch
from paceline.llama.lib import Floats

TOKEN = 1
REPEATS = 3


class Computes(Protocol):
    """What of a context measuring needs."""

    n_batch: int
    n_ctx_seq: int

    def new_batch(self) -> Batch: ...
    def decode(self, batch: Batch) -> Floats: ...
    def remove(self, seq: int, start: int, end: int = -1) -> bool: ...


def warm_up(context: Computes, curve: CostCurve, n_max: int, seconds: float) -> None:
    """Measure sizes up to n_max, small ones first, until the time is up; what an earlier run knew fills in the rest."""
    timer = Timer(context)
    timer.take(2)
    started = perf_counter()
    for n in SIZES:
        left = seconds - (perf_counter() - started)
        if n > min(n_max, context.n_batch, context.n_ctx_seq - 1) or (curve.known and curve.predict(n) > left):
            break
        curve.set(n, min(timer.take(n) for _ in range(REPEATS)))


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
