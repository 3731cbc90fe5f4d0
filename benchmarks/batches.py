"""What a batch of n tokens costs, by the steps around it. Knows contexts; nothing of engines.

same    the size again and again
turns   taking turns with batches of 1: what it costs then, and what the 1 beside it costs
lone    one such batch, then plain steps: what it costs, and the four after it

On a CPU all agree. On a GPU a change of size costs as much again, in this step and the two after it.
This is the part `curves` of benchmarks.gpu.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from paceline.config import ContextParams
from paceline.engine.worker import WORKER
from paceline.llama.context import Context
from paceline.llama.model import Model

SIZES = (1, 2, 4, 8, 16, 32, 64)
N_CONTEXT = 512
N_ROOM = 256
N_AFTER = 4
N_MOST = 200  # rounds of one pattern: more say nothing new
N_SETTLE = 3
TOKEN = 5


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of one size, each a median."""

    same: float
    turns: float
    one_beside: float
    lone: tuple[float, ...]


class Steps:
    """Batches of any size after the same text, one after the other."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._batch = context.new_batch()
        self._batch.add(0, [TOKEN] * N_CONTEXT, 0, 1)
        context.decode(self._batch)

    def take(self, n: int) -> float:
        """Milliseconds until the logits of n tokens are here."""
        self._batch.clear()
        self._batch.add(0, [TOKEN] * n, N_CONTEXT, n)
        start = perf_counter()
        self._context.decode(self._batch)
        ms = 1e3 * (perf_counter() - start)
        self._context.remove(0, N_CONTEXT)
        return ms

    def pattern(self, sizes: tuple[int, ...], seconds: float) -> tuple[float, ...]:
        """These sizes over and over: the median of each place, once things have settled."""
        until = perf_counter() + seconds
        rounds: list[list[float]] = []
        while len(rounds) < 2 or (perf_counter() < until and len(rounds) < N_MOST):
            rounds.append([self.take(n) for n in sizes])
        settled = rounds[min(N_SETTLE, len(rounds) // 2) :]
        return tuple(median(place) for place in zip(*settled, strict=True))


def measure(model: Model, params: ContextParams, seconds: float) -> dict[int, Cost]:
    """Every size in every pattern, in so many seconds if the model is quick enough to be measured at all."""
    with Context(model, replace(params, n_ctx=N_CONTEXT + N_ROOM, n_seqs=1)) as context:
        return WORKER.call(lambda: _measure(context, seconds / len(SIZES) / 3))


def _measure(context: Context, share: float) -> dict[int, Cost]:
    steps = Steps(context)
    return {n: cost(steps, n, share) for n in SIZES}


def cost(steps: Steps, n: int, share: float) -> Cost:
    (same,) = steps.pattern((n,), share)
    turns, beside = steps.pattern((n, 1), share)
    return Cost(same, turns, beside, steps.pattern((n, *[1] * N_AFTER), share))


def table(name: str, costs: dict[int, Cost]) -> Table:
    out = Table("ms", *map(str, costs), title=name, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    out.add_row("same size", *(f"{cost.same:.2f}" for cost in costs.values()))
    out.add_row("turns with 1", *(f"{cost.turns:.2f}" for cost in costs.values()))
    out.add_row("the 1 beside it", *(f"{cost.one_beside:.2f}" for cost in costs.values()))
    for place in range(N_AFTER + 1):
        label = "lone among plain" if not place else f"plain, {place} later"
        out.add_row(label, *(f"{cost.lone[place]:.2f}" for cost in costs.values()))
    return out


def as_json(costs: dict[int, Cost]) -> dict[str, Any]:
    names = ("same", "turns", "one_beside", "lone")
    return {str(n): {name: rounded(getattr(cost, name)) for name in names} for n, cost in costs.items()}


def rounded(value: float | tuple[float, ...]) -> float | list[float]:
    return [round(each, 4) for each in value] if isinstance(value, tuple) else round(value, 4)


if __name__ == "__main__":
    raise SystemExit("batches: run it with python -m benchmarks.gpu -m model.gguf --parts curves")
