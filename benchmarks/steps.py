"""Where the time of a step goes: launching the work, waiting for it and copying, drafting, and Python for the rest.

The part `steps` of benchmarks.gpu.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from unittest.mock import patch

from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.common import inside
from paceline.bench.jobs import Job
from paceline.bench.methods import Method
from paceline.bench.run import Runner
from paceline.config import SamplingParams, Settings
from paceline.library import Engine
from paceline.llama import context as room
from paceline.llama.lib import get_logits
from paceline.llama.shared import SharedModels

GREEDY = SamplingParams(temperature=0.0, ignore_eos=True)
COLUMNS = ("steps", "tokens a step", "launch", "waiting, copying", "drafting", "Python", "ms a step")


@dataclass(slots=True)
class Anatomy:
    """Seconds of all steps that went on with an answer. `by_size` holds those of each batch size."""

    method: str
    n_steps: int = 0
    n_tokens: int = 0
    launch: float = 0.0
    waiting: float = 0.0
    drafting: float = 0.0
    python: float = 0.0
    by_size: dict[int, list[float]] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return self.launch + self.waiting + self.drafting + self.python

    def sizes(self) -> dict[str, tuple[int, float]]:
        """Of each size, how many steps there were and their milliseconds."""
        return {str(n): (len(s), round(1e3 * sum(s) / len(s), 3)) for n, s in sorted(self.by_size.items())}


@contextmanager
def watched_logits() -> Iterator[dict[int, float]]:
    """Seconds inside llama_get_logits, which waits for the device, by context."""
    spent: dict[int, float] = defaultdict(float)

    def timed(handle: int) -> int | None:
        start = perf_counter()
        address: int | None = get_logits(handle)
        spent[handle] += perf_counter() - start
        return address

    with patch.object(room, "get_logits", timed):
        yield spent


def watch(engine: Engine, found: Anatomy, waited: dict[int, float]) -> None:
    """From now on every step's time is booked."""
    core, context = inside(engine).core, inside(engine).parts.context
    step = core.step
    assert context.handle
    handle = context.handle

    def now() -> tuple[float, float, float, float]:
        drafting = sum(stats.draft_ms + stats.accept_ms for stats in core.drafting.stats.values()) / 1e3
        return perf_counter(), context.seconds, waited[handle], drafting

    def booked() -> None:
        slots = [slot for slot in core.slots if slot.generating]
        n_before, before = sum(slot.n_generated for slot in slots), now()
        n_decodes = context.n_decodes
        step()
        if not slots or context.n_decodes == n_decodes:
            return
        whole, inside, waiting, drafting = (b - a for a, b in zip(before, now(), strict=True))
        found.n_steps += 1
        found.n_tokens += sum(slot.n_generated for slot in slots) - n_before
        found.launch += inside - waiting
        found.waiting += waiting
        found.drafting += drafting
        found.python += whole - inside - drafting
        found.by_size.setdefault(core._batch.n_tokens, []).append(whole)

    setattr(core, "step", booked)  # noqa: B010


def measure(
    base: Settings, method: Method, read: Sequence[Job], n_tokens: int, models: SharedModels, seconds: float
) -> Anatomy:
    """One method's jobs, one after the other, while there is time."""
    until = perf_counter() + seconds
    found = Anatomy(method.name)
    with watched_logits() as waited, Engine.from_settings(method.settings(base), models=models) as engine:
        runner = Runner(engine)
        runner.warm_up()
        watch(engine, found, waited)
        for job in read:
            runner.prepare(job, n_tokens, GREEDY)
            runner.start(job, n_tokens, GREEDY)()
            if perf_counter() > until:
                break
    return found


def table(rows: Sequence[Anatomy]) -> Table:
    out = Table("ms", *COLUMNS, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        n = max(1, row.n_steps)
        parts = (row.launch, row.waiting, row.drafting, row.python, row.seconds)
        out.add_row(row.method, str(n), f"{row.n_tokens / n:.2f}", *(f"{1e3 * part / n:.3f}" for part in parts))
    return out


if __name__ == "__main__":
    raise SystemExit("steps: run it with python -m benchmarks.gpu -m model.gguf --parts steps")
