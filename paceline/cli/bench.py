"""`paceline bench`: what speculation gains on this machine, measured side by side with none."""

from __future__ import annotations

import json
import logging
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

import paceline
from paceline.bench import jobs, report, suite
from paceline.bench.methods import Method, parse_all
from paceline.bench.run import Plan, Sample, opener, run
from paceline.cli import build
from paceline.cli.fetching import with_files
from paceline.cli.flags import Parsed
from paceline.cli.options import BenchOptions
from paceline.config import SamplingParams, Settings
from paceline.errors import ConfigError
from paceline.llama.shared import SharedModels

log = logging.getLogger("paceline")

QUICK: dict[str, Any] = {"limit": 2, "n_tokens": 48}
QUICK_SECONDS = 40.0
WIDTH = 120
SEED = 1


def main(parsed: Parsed) -> int:
    options = options_of(parsed)
    methods = parse_all(options.methods)
    settings = build.settings(parsed)
    for method in methods:
        method.settings(settings)
    sampling = sampling_of(parsed)
    prompts = suite.load(options.prompts) if options.prompts else suite.SUITE
    chosen = jobs.choose(prompts, options.categories, options.limit, settings.engine.n_slots, tail=options.tail)
    check_writable(options.json)
    settings = with_files(settings, parsed)
    with SharedModels() as models:
        plan, settings = prepare(options, methods, settings, sampling, chosen, models)
        samples = measure(plan, settings, models)
    show(samples, plan, settings, options.json)
    return 0


def options_of(parsed: Parsed) -> BenchOptions:
    given = parsed.under("bench")
    return BenchOptions(**({**QUICK, **given} if given.get("quick") else given))


def sampling_of(parsed: Parsed) -> SamplingParams:
    """Greedy unless told otherwise, and never by chance."""
    sampling = build.sampling(parsed)
    if "sampling.temperature" not in parsed.values:
        sampling = replace(sampling, temperature=0.0)
    return sampling if sampling.seed >= 0 else replace(sampling, seed=SEED)


def check_writable(path: str | None) -> None:
    """Now, not after an hour of measuring."""
    try:
        if path:
            Path(path).open("a").close()
    except OSError as error:
        raise ConfigError(f"cannot write to {path}: {error.strerror}") from None


def prepare(
    options: BenchOptions,
    methods: tuple[Method, ...],
    settings: Settings,
    sampling: SamplingParams,
    chosen: list[list[suite.SuitePrompt]],
    models: SharedModels,
) -> tuple[Plan, Settings]:
    read = jobs.read(settings, chosen, options.n_tokens, models)
    if len(read) < len(chosen):
        log.warning("%d of %d jobs are too long for a slot; raise -c", len(chosen) - len(read), len(chosen))
    seconds = QUICK_SECONDS if options.quick else float("inf")
    plan = Plan(
        methods=methods,
        jobs=read,
        n_tokens=options.n_tokens,
        sampling=sampling,
        n_repeats=options.repeat,
        seconds=seconds,
    )
    return plan, jobs.with_room(settings, read, options.n_tokens)


def measure(plan: Plan, settings: Settings, models: SharedModels) -> list[Sample]:
    """Ctrl-C ends the measuring, not the report."""
    samples: list[Sample] = []
    try:
        with bar(len(plan)) as advance, closing(run(plan, opener(settings, models))) as measured:
            for sample in measured:
                samples.append(sample)
                advance(sample)
    except KeyboardInterrupt:
        if not samples:
            raise
        tell("interrupted: this is what was measured so far")
    return samples


@contextmanager
def bar(n_total: int) -> Iterator[Callable[[Sample], None]]:
    """On stderr, for people only."""
    if not sys.stderr.isatty():
        yield lambda sample: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:<40}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("opening", total=n_total)

        def advance(sample: Sample) -> None:
            speed = f"{sample.n_tokens / sample.seconds:.1f} t/s" if sample.seconds else "failed"
            progress.update(task, advance=1, description=f"{sample.category} {sample.method} {speed}")

        yield advance


def show(samples: list[Sample], plan: Plan, settings: Settings, path: str | None) -> None:
    """The table, then one line of JSON; all the data into the file."""
    failed = [sample for sample in samples if sample.error]
    if failed:
        log.warning("%d runs failed and do not count; the first: %s", len(failed), failed[0].error)
    rows = report.compare(samples, plan.methods)
    if not rows:
        raise ConfigError("nothing was measured")
    found = report.hindsight(samples, plan.methods)
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    console.print(report.table(rows))
    if found:
        console.print(report.hindsight_line(found))
    about, summed = head(plan, settings), report.summary(rows, found)
    if path:
        Path(path).write_text(json.dumps(report.all_data(about, summed, samples)) + "\n")
    print(json.dumps({**about, **summed}))


def head(plan: Plan, settings: Settings) -> dict[str, Any]:
    """What was measured, and on what."""
    return {
        "paceline": paceline.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "model": Path(settings.model.path).name,
        "draft": Path(settings.draft.path).name if settings.draft else None,
        "n_slots": settings.engine.n_slots,
        "exact": settings.engine.exact,
        "n_tokens": plan.n_tokens,
        "temperature": plan.sampling.temperature,
        "seed": plan.sampling.seed,
        "n_repeats": plan.n_repeats,
    }


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
