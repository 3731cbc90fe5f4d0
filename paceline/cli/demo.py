"""`paceline demo`: the same answers without and with speculation, drafted tokens tinted, and the speeds."""

from __future__ import annotations

import argparse
import os
import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from paceline.cli.report import Answer
from paceline.cli.tint import Screen, wants_color
from paceline.engine.stats import acceptance_line
from paceline.library import Engine
from paceline.models import cache_folder, demo_copy, demo_draft

NEW = "Explain to a child, step by step, how bread is made and why the dough rises."
"""Look-ups find nothing here to repeat: the draft model has to think of it."""
AGAIN = """Correct the spelling in this text and repeat it otherwise unchanged:

The lighthouse stood at the end of the long stone pier. Every evening the keeper climbed the ninety steps, cleaned \
the great lens, and lit the lamp. Every mornning he climbed the ninety steps again, put out the lamp, and wrote one \
line in the logbook: the wind, the weather, and the ships that had passed. Nobody ever read the logbook, but the \
keeper wrote every line with great care, for he beleived that somebody would."""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="paceline demo", description=__doc__)
    parser.add_argument("--kind", default="F16", help="precision of the demo model: F16 (default), Q8_0, Q4_1")
    drafts = parser.add_mutually_exclusive_group()
    drafts.add_argument("-md", "--model-draft", help="a draft model or head for it, instead of the one in models/")
    drafts.add_argument("--no-draft", action="store_true", help="without a draft model: look-ups in the text alone")
    parser.add_argument("-p", "--prompt", help="instead of a text that is new and one that repeats what was said")
    parser.add_argument("-n", type=int, default=160, help="tokens at most")
    parser.add_argument("--no-color", action="store_true")
    args = parser.parse_args(argv)
    console = Console(highlight=False)
    path = prepare(args.kind, console)
    color = wants_color(False if args.no_color else None, sys.stdout, os.environ)
    draft = None if args.no_draft else args.model_draft or demo_draft()
    with Engine(path, draft=draft, n_ctx=2048) as engine:
        warm_up(engine)
        for prompt in (args.prompt,) if args.prompt else (NEW, AGAIN):
            console.rule(f"[bold]{escape(prompt.partition(chr(10))[0])}", align="left", style="cyan")
            compare(engine, prompt, args.n, console, color)
    return 0


def compare(engine: Engine, prompt: str, n: int, console: Console, color: bool) -> None:
    plain = answer(engine, prompt, n, (), "Without speculation", console, color)
    drafters = engine.info.drafters
    drafted = answer(engine, prompt, n, drafters, "With speculation (tinted: drafted)", console, color)
    summary(plain, drafted, console)


def prepare(kind: str, console: Console) -> str:
    """The demo model at a precision where a batch is cheap on a CPU; made once."""
    folder = cache_folder()
    with console.status(f"making a {kind} copy of the demo model in {folder} (seconds, once)"):
        path, made = demo_copy(kind)
    if made:
        console.print(f"made a {kind} copy of the demo model in {folder}")
    return path


def warm_up(engine: Engine) -> None:
    engine.generate("Hello", max_tokens=8, temperature=0).text()


def answer(
    engine: Engine, prompt: str, n: int, types: tuple[str, ...], title: str, console: Console, color: bool
) -> Answer:
    console.rule(f"[bold]{title}")
    text = engine.chat_template.render([{"role": "user", "content": prompt}])
    screen, result = Screen(sys.stdout, color=color), Answer()
    generation = engine.generate(text, max_tokens=n, temperature=0, speculative={"types": types})
    for chunk in generation:
        screen.show(chunk)
        result.add(chunk)
    result.end(generation.finish)
    screen.end_line()
    return result


def summary(plain: Answer, drafted: Answer, console: Console) -> None:
    table = Table("", "tokens", "tokens/s", "tokens per step")
    for name, a in (("without speculation", plain), ("with speculation", drafted)):
        t = a.timings
        table.add_row(name, str(t.predicted_n), f"{t.predicted_per_second:.1f}", f"{t.tokens_per_step:.2f}")
    console.print()
    console.print(table)
    gain = drafted.timings.predicted_per_second / plain.timings.predicted_per_second
    same = "the same text" if plain.text == drafted.text else "the texts part at a near-tie (see `--exact`)"
    console.print(f"[bold]{gain:.2f} times[/bold] the speed, {same}")
    console.print(acceptance_line(drafted.timings.draft_n_accepted, drafted.timings.draft_n))
    for stats in drafted.timings.drafters:
        console.print(stats.line())
