"""What a finished draft is worth, by libllama on this machine: how often it says the target's next word, what a word
costs, and the speed-up to expect of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from paceline.config import ContextParams, ModelParams
from paceline.distill.script import TextKind
from paceline.distill.texts import Rows
from paceline.engine.warmup import warm_up
from paceline.llama.context import Context
from paceline.llama.model import Model
from paceline.planner.costs import CostCurve

LONGEST_DRAFT = 16
SECONDS = 1.0


class Favourites(NamedTuple):
    """What a model would have said next at each position of a text."""

    tokens: npt.NDArray[np.int32]
    words: npt.NDArray[np.int64]
    kinds: npt.NDArray[np.uint8]


def favourites(path: str, rows: Rows, n_rows: int, n_threads: int = 0) -> Iterator[Favourites]:
    """Row by row, each in one batch."""
    length = rows.tokens.shape[1]
    params = ContextParams(
        n_ctx=max(256, length), n_batch=length, n_ubatch=length, n_threads=n_threads, n_threads_batch=n_threads
    )
    with Model(ModelParams(path=path)) as model, Context(model, params) as context:
        batch = context.new_batch()
        for tokens, kinds in zip(rows.tokens[:n_rows], rows.kinds[:n_rows], strict=True):
            batch.clear()
            batch.add(0, tokens.tolist(), 0, length)
            yield Favourites(tokens, context.decode(batch).argmax(-1), kinds)
            context.clear()


def agreement_of(path: str, rows: Rows, n_rows: int, n_threads: int = 0) -> float:
    """How often the file's favourite is what the target wrote at temperature 0."""
    right = counted = 0
    for found in favourites(path, rows, n_rows, n_threads):
        measured = found.kinds[1:] == TextKind.GREEDY
        right += int((found.words[:-1] == found.tokens[1:])[measured].sum())
        counted += int(measured.sum())
    return right / max(1, counted)


def cost_curve(path: str, n_threads: int = 0, seconds: float = SECONDS) -> CostCurve:
    """What a batch of so many tokens takes."""
    params = ContextParams(n_ctx=512, n_threads=n_threads, n_threads_batch=n_threads)
    curve = CostCurve()
    with Model(ModelParams(path=path)) as model, Context(model, params) as context:
        warm_up(context, curve, seconds)
    return curve


@dataclass(frozen=True, slots=True)
class Expectation:
    """The best fixed draft length for this agreement, and how much faster text comes with it."""

    n_draft: int
    speed_up: float


def expectation(target: CostCurve, draft: CostCurve, agreement: float) -> Expectation:
    """As if every draft token were right with the same chance; drafting nothing is one of the choices."""
    plain = target.predict(1)

    def speed_up(n: int) -> float:
        tokens = sum(agreement**i for i in range(n + 1))
        return tokens * plain / (target.predict(n + 1) + n * draft.predict(1))

    best = max(range(LONGEST_DRAFT + 1), key=speed_up)
    return Expectation(best, speed_up(best))
