"""`paceline distill`: a draft for a target, from the target alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.cli.flags import Parsed
from paceline.cli.options import DistillOptions
from paceline.cli.table.distill import STAGES
from paceline.distill.needs import gguf, torch
from paceline.errors import ConfigError

if TYPE_CHECKING:
    from rich.progress import Progress

    from paceline.distill.making import Recipe

EVERY_SHARE = 0.05
"""Without a terminal, a line each time so much more is done."""


def main(parsed: Parsed) -> int:
    options = DistillOptions(**parsed.under("distill"))
    check(options)
    gguf()
    torch()
    from paceline.distill.continuing import making_of

    recipe = recipe_of(parsed, options)
    with audience() as watching:
        try:
            making_of(options.type, recipe, watching).run(options.stage or STAGES)
        except KeyboardInterrupt:
            watching.tell(f"interrupted; the same command goes on from what is in {recipe.folder}")
            raise
    return 0


def check(options: DistillOptions) -> None:
    if not options.output:
        raise ConfigError("-o FILE is needed: the draft to make")
    wrong = [stage for stage in options.stage if stage not in STAGES]
    if wrong:
        raise ConfigError(f"--stage: {wrong[0]!r} is none of {', '.join(STAGES)}")


def recipe_of(parsed: Parsed, options: DistillOptions) -> Recipe:
    from paceline.distill.making import Recipe

    output = str(options.output)
    return Recipe(
        target=parsed.values.get("model.path") or default_target(),
        output=output,
        folder=Path(options.work or f"{output}.work"),
        size=options.size,
        minutes=options.minutes,
        own_prompts=options.prompts,
        kind=options.kind,
        device=options.device,
        dtype=options.dtype,
        n_rows=options.rows,
        length=options.length,
        n_text=options.text_tokens,
        n_steps=options.steps,
        batch_tokens=options.batch_tokens,
        rate=options.rate,
        checkpoint_seconds=options.save_every,
        seed=options.seed,
        n_threads=parsed.values.get("context.n_threads", 0),
        n_known=options.head_tokens,
        n_ff=options.head_ff,
        start=options.start,
    )


def default_target() -> str:
    from paceline.models import default_model

    return default_model()


class Printed:
    """Lines on stderr for programs and log files: stages, what is said, and now and then how far it got."""

    def __init__(self) -> None:
        self.name, self.told = "", 0.0

    def stage(self, name: str) -> None:
        self.name, self.told = name, -1.0
        self.tell(f"{name} ...")

    def progress(self, share: float, note: str) -> None:
        if share >= self.told + EVERY_SHARE or (share >= 1 > self.told):
            self.told = share
            self.tell(f"{self.name}: {100 * share:.0f} %, {note}")

    def tell(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class Shown(Printed):
    """A bar on the terminal instead."""

    def __init__(self, bars: Progress) -> None:
        super().__init__()
        self.bars = bars
        self.task = bars.add_task("", total=1.0, note="")

    def stage(self, name: str) -> None:
        self.bars.reset(self.task, description=name, total=1.0, note="")

    def progress(self, share: float, note: str) -> None:
        self.bars.update(self.task, completed=share, note=note)

    def tell(self, line: str) -> None:
        self.bars.console.print(line, highlight=False)


@contextmanager
def audience() -> Iterator[Printed]:
    if not sys.stderr.isatty():
        yield Printed()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<20}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        yield Shown(bars)
