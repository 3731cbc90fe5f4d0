"""Opening a model for exact mode: which layout of batches keeps its bits, and whether its weights have to stay as the
file has them. What was found is kept in the cache folder, by model and machine. Knows files and contexts."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from paceline import models
from paceline.config import ContextParams, ModelParams
from paceline.engine.exactness import ALONE, BORDER, CANDIDATES, Layout, find, step_seconds
from paceline.engine.worker import WORKER
from paceline.errors import ConfigError
from paceline.files import write_whole
from paceline.llama.context import Context, fingerprint
from paceline.llama.lib import devices, untile
from paceline.llama.model import Model, check_file
from paceline.llama.rpc import WORKERS
from paceline.llama.shared import SharedModels

LARGEST = max(layout.most for layout in CANDIDATES)
N_ROUNDS = 3
CHEAP = 2  # tokens in the smallest batch: looking for a better layout is not worth loading the model again


@dataclass(frozen=True, slots=True)
class Finding:
    """By which layout a model is exact, `repacked` for the processor or not, and how many times a plain step it takes.

    `several` says whether that was tried with more than one slot, `n_ctx` in a slot of how many tokens.
    """

    layout: Layout
    repacked: bool
    cost: float
    several: bool
    n_ctx: int

    def __str__(self) -> str:
        how = "" if self.repacked else ", weights not repacked"
        return f"{self.layout}{how}; a step takes {self.cost:.1f} times a plain one"

    def save(self, path: Path) -> None:
        """A cache that cannot be written is no trouble."""
        with suppress(OSError):
            write_whole(path, json.dumps(asdict(self)).encode())

    @classmethod
    def load(cls, path: Path) -> Finding | None:
        """None where there is no such file, or it is broken."""
        try:
            kept = json.loads(path.read_text())
            layout = Layout(**kept.pop("layout"))
            return cls(layout, **kept)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, AssertionError):
            return None


class Opening:
    """One model and its context, opened again where another way to load it is better. `close` frees both."""

    def __init__(
        self,
        model: ModelParams,
        context: ContextParams,
        on_progress: Callable[[float], None] | None,
        shared: SharedModels | None,
    ) -> None:
        self._shared = shared
        self._params = model
        self._shape = context
        self._on_progress = on_progress
        self._stack = ExitStack()
        self.repacked = True
        self.plain_seconds = float("inf")

    def load(self, *, repacked: bool) -> None:
        self.close()
        params = replace(self._params, use_extra_bufts=repacked and self._params.use_extra_bufts)
        self.repacked = repacked
        if self._shared:
            self.model = self._shared.get(params, self._on_progress)
        else:
            self.model = self._stack.enter_context(Model(params, self._on_progress))
        self.context = self._stack.enter_context(Context(self.model, self._shape))

    def close(self) -> None:
        self._stack.close()

    def find(self, candidates: tuple[Layout, ...]) -> Finding | None:
        """In one call: each may come from a new thread, and would bring new threads of libllama's."""
        return WORKER.call(lambda: self._find(candidates))

    def _find(self, candidates: tuple[Layout, ...]) -> Finding | None:
        if self.repacked:
            self._time_plain()
        layout = find(self.context, candidates)
        if layout is None:
            return None
        cost = self._cost(layout.least)
        return Finding(layout, self.repacked, cost, self._shape.n_seqs > 1, self.context.n_ctx_seq)

    def better_than(self, found: Finding | None) -> tuple[Layout, ...]:
        """Candidates before this one, as far as the context takes them."""
        fitting = [layout.within(self.context) for layout in CANDIDATES]
        return CANDIDATES[: fitting.index(found.layout)] if found else CANDIDATES

    def _cost(self, n: int) -> float:
        """A batch of n tokens against a plain step of weights as they are usually loaded, each at its best."""
        steps = []
        for _ in range(N_ROUNDS):
            steps.append(step_seconds(self.context, n))
            if self.repacked:
                self._time_plain()
        return min(steps) / max(1e-9, self.plain_seconds)

    def _time_plain(self) -> None:
        self.plain_seconds = min(self.plain_seconds, step_seconds(self.context, 1))


def open_exactly(
    model: ModelParams,
    context: ContextParams,
    on_progress: Callable[[float], None] | None,
    shared: SharedModels | None = None,
    *,
    again: bool = False,
) -> tuple[Opening, Finding]:
    """A context that is exact by the layout found; refuses where there is none. `again` goes on as it was before."""
    check_file(model.path)
    untile()
    opening = Opening(model, context, on_progress, shared)
    try:
        return opening, settle(opening, model, context, again)
    except BaseException:
        opening.close()
        raise


def settle(opening: Opening, model: ModelParams, context: ContextParams, again: bool) -> Finding:
    """What is known of this model on this machine, else what is found now. The address of a worker says too little of
    what computes there today; but texts that are to go on keep the layout they began with."""
    name = fingerprint(model, context, "exact", min(context.n_batch, context.n_ubatch, LARGEST))
    path = models.cache_folder() / "costs" / f"{name}.exact.json"
    known = None if WORKERS and not again else Finding.load(path)
    opening.load(repacked=known is None or known.repacked)
    if opening.context.n_rollback == 0:
        return alone(opening)
    found = confirmed(opening, known) if known else None
    if found is None:
        found = search(opening)
    if found != known:
        found.save(path)
    fitting = found.layout.within(opening.context)
    assert fitting
    return replace(found, layout=fitting)


def confirmed(opening: Opening, known: Finding) -> Finding | None:
    """An earlier finding, if it holds here: one slot says nothing of a second, nor a short text of a longer one."""
    context = opening.context
    if known.layout.within(context) is None:
        return None
    far = known.n_ctx >= min(context.n_ctx_seq, 2 * BORDER)
    if far and (known.several or context.n_seqs == 1):
        return known
    found = opening.find((known.layout,))
    return replace(known, several=found.several, n_ctx=found.n_ctx) if found else None


def search(opening: Opening) -> Finding:
    """Weights as they are usually loaded; where that takes large batches and the CPU has some, as the file has them."""
    if not opening.repacked:
        opening.load(repacked=True)
    found = opening.find(CANDIDATES)
    if found and found.layout.least <= CHEAP:
        return found
    if opening.model.on_cpu:
        before = found
        opening.load(repacked=False)
        found = opening.find(opening.better_than(before)) or before
        if found is before and before:
            opening.load(repacked=True)
    if found is None and opening.context.n_rollback is not None:
        return alone(opening)
    if found is None:
        raise ConfigError(refusal(opening))
    return found


def alone(opening: Opening) -> Finding:
    """One token at a time: a state follows from the one before it, and nothing is ever taken back."""
    return Finding(ALONE, opening.repacked, 1.0, True, opening.context.n_ctx_seq)


def refusal(opening: Opening) -> str:
    where = " + ".join(devices())
    return (
        f"--exact cannot be kept for {Path(opening.model.path).name} on {where}: "
        "its logits depend on how tokens are batched, at every batch size tried; run it without --exact"
    )
