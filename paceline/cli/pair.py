"""`paceline pair`: which files around can draft for a model, what each would gain here, and how to use the best."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

import paceline
from paceline.cli import build
from paceline.cli.flags import Parsed
from paceline.cli.options import PairOptions
from paceline.config import Settings
from paceline.errors import ConfigError
from paceline.library import pair

if TYPE_CHECKING:
    from paceline.process.pairing import Found, PairingStage, PairReport

WIDTH = 140
OURS = ("pair.", "common.", "log.", "model.path", "draft.path", "hub.")
"""Flags that `paceline serve` is not told again."""
ADVICE = """\
Nothing here is worth using. What to look for: a model of the same family with the same tokenizer, at most a tenth of \
the size, at Q4_0 or Q8_0; or a head that was trained for this very model (EAGLE-3, MTP, DFlash). `-hfd USER/MODEL` \
names a draft by repository. `paceline distill` makes one from the model itself."""


def main(parsed: Parsed) -> int:
    options = PairOptions(**parsed.under("pair"))
    settings, places = asked(parsed)
    with bar() as advance:
        report = pair(settings, places, options.seconds, advance)
    command = command_line(report, parsed)
    if options.json:
        print(json.dumps(as_json(report, command)))
    else:
        show(report, command)
    return 0 if report.best else 1


def asked(parsed: Parsed) -> tuple[Settings, tuple[str, ...]]:
    """The target comes first unless `-m` or `-hf` is typed; it wins over variables and the configuration. `-md` is one
    more file to look at."""
    words, draft = list(parsed.words), parsed.values.get("draft.path")
    if words and not {"model.path", "hub.model"} & {sets for sets, _ in parsed.typed}:
        parsed.values.pop("hub.model", None)
        parsed.values["model.path"] = words.pop(0)
    if not {"model.path", "hub.model"} & parsed.values.keys():
        raise ConfigError("which model is to be drafted for? paceline pair TARGET.gguf [FOLDER ...]")
    parsed.values["draft.path"] = "-"  # how drafts are loaded; which ones, is the question
    return build.settings(parsed), (*words, *([str(draft)] if draft else []))


@contextmanager
def bar() -> Iterator[Callable[[PairingStage], None] | None]:
    """On stderr, for people only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<50}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("")
        yield lambda at: progress.update(task, description=at.doing, completed=at.n_done, total=at.n_all)


def command_line(report: PairReport, parsed: Parsed) -> str | None:
    """For the best, with the flags it was measured with."""
    best, target = report.best, report.target.path
    if best is None:
        return None
    candidate = best.candidate
    words = ["paceline", "serve", "-m", target]
    own = candidate.path == target
    words += ["--spec-type", f"grammar,suffix,{candidate.kind}"] if own else ["-md", candidate.path]
    for sets, typed in parsed.typed:
        words += [] if sets.startswith(OURS) else typed
    return shlex.join(words)


# -- for people


def show(report: PairReport, command: str | None) -> None:
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    target = report.target
    about = f"{target.name}: {number(target.n_params)} parameters, {decimal(target.n_bytes)}"
    if report.plain_ms:
        about += f"; {report.plain_ms:.1f} ms a token; look-ups alone would gain {report.look_ups:.2f} times"
    console.print(about, soft_wrap=True)
    if report.found:
        console.print(table(report))
    else:
        console.print("no other GGUF file is there", soft_wrap=True)
    console.print(command or ADVICE, soft_wrap=True)


def table(report: PairReport) -> Table:
    """Best first: share of tokens on which both agree, what a draft token takes, and by the planner's account how much
    sooner texts are written."""
    out = Table(
        "file", "parameters", "relation", "agreement", "draft ms", "speed-up", "", box=SIMPLE_HEAD, pad_edge=False
    )
    for column in (1, 3, 4, 5):
        out.columns[column].justify = "right"
    out.columns[0].overflow = out.columns[-1].overflow = "fold"
    for found in report.found:
        out.add_row(*cells(report, found), style="bold" if found is report.best else None)
    return out


def cells(report: PairReport, found: Found) -> list[str]:
    candidate, figures = found.candidate, found.figures
    name = candidate.name if candidate.path != report.target.path else f"{candidate.name} (its own blocks)"
    measured = ["", "", ""]
    if figures:
        measured = [f"{figures.agreement:.0%}", f"{figures.draft_ms:.1f}", f"{figures.speedup:.2f}"]
    return [name, number(candidate.n_params), candidate.fit, *measured, verdict(report, found)]


def verdict(report: PairReport, found: Found) -> str:
    figures, note = found.figures, found.candidate.note
    if figures is None:
        return found.why
    if found is report.best:
        return f"use it ({note})" if note else "use it"
    if report.is_worth(found):
        return f"gains less ({note})" if note else "gains less"
    against = f"{figures.draft_ms:.1f} ms a draft token against {figures.plain_ms:.1f} ms a plain step"
    if not figures.can_pay:
        return f"cannot gain here: {against}"
    if not found.agrees:
        return "gains nothing: it hardly ever says what the target says"
    return f"gains nothing here: {against}"


def number(n: int) -> str:
    """Of parameters, as people say it."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if n >= size:
            return f"{n / size:.1f}{unit}" if n < 10 * size else f"{n / size:.0f}{unit}"
    return str(n) if n else ""


# -- for programs


def as_json(report: PairReport, command: str | None) -> dict[str, Any]:
    best = report.best
    return {
        "paceline": paceline.__version__,
        "target": file_json(report.target.path, report.target.n_params, report.target.n_bytes),
        "plain_ms": report.plain_ms,
        "batch_ms": report.batch_ms,
        "n_written": report.n_written,
        "look_ups": report.look_ups,
        "best": best.candidate.path if best else None,
        "command": command,
        "candidates": [found_json(report, found) for found in report.found],
    }


def file_json(path: str, n_params: int, n_bytes: int) -> dict[str, Any]:
    return {"path": path, "name": Path(path).name, "n_params": n_params, "n_bytes": n_bytes}


def found_json(report: PairReport, found: Found) -> dict[str, Any]:
    candidate = found.candidate
    return {
        **file_json(candidate.path, candidate.n_params, candidate.n_bytes),
        "relation": str(candidate.fit),
        "spec_type": candidate.kind if found.figures else None,
        "note": candidate.note,
        "worth_using": report.is_worth(found),
        "verdict": verdict(report, found),
        **({"measured": asdict(found.figures)} if found.figures else {}),
    }
