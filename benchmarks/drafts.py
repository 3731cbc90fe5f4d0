"""Several drafts for one target side by side: `auto` with each against none, a step of one after a step of another.

    python -m benchmarks.drafts DRAFT.gguf HEAD.gguf ... [-m TARGET.gguf] [--kind F16] [--prompts FILE.jsonl] [-n 192]

Prompts come from the end of each category, last first: what settings were chosen on is not what drafts are judged by.
The last column compares each with the last file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common import SPEC_BENCH, guarded, needed
from paceline.bench import jobs
from paceline.bench.methods import NONE, Method
from paceline.bench.report import Comparison, compare
from paceline.bench.run import Contender, Plan, Runner, run
from paceline.bench.suite import SUITE, load
from paceline.config import ContextParams, EngineParams, ModelParams, SamplingParams, Settings
from paceline.drafters.names import HEADS
from paceline.library import Engine, default_types
from paceline.llama.shared import SharedModels
from paceline.models import demo_copy


def contenders(base: Settings, drafts: dict[str, str], models: SharedModels) -> Callable[[Method], Contender]:
    """One engine for each draft, and one without."""

    def opened(method: Method) -> Contender:
        if method.name == NONE:
            return Runner(Engine.from_settings(base, models=models))
        engine = replace(base.engine, spec_types=default_types(has_draft=True), spec_policy="auto")
        settings = replace(base, draft=ModelParams(path=drafts[method.name]), engine=engine)
        return Runner(Engine.from_settings(settings, models=models))

    return opened


def measure(args: argparse.Namespace, target: str, drafts: dict[str, str]) -> list[Comparison]:
    context = ContextParams(n_ctx=4096, n_threads=args.threads)
    base = Settings(
        model=ModelParams(path=target),
        context=context,
        draft_context=context,
        engine=EngineParams(n_slots=args.slots, spec_types=(), spec_policy="fixed"),
    )
    prompts = load(needed(args.prompts, "prompts")) if args.prompts else SUITE
    methods = (Method(NONE), *(Method(name, "auto") for name in drafts))
    with SharedModels() as models:
        chosen = jobs.choose(prompts, (), args.limit, args.slots, tail=True)
        read = jobs.read(base, chosen, args.n, models)
        sampling = SamplingParams(temperature=args.temp, seed=1)
        plan = Plan(methods=methods, jobs=read, n_tokens=args.n, sampling=sampling, n_repeats=args.repeat)
        settings = jobs.with_room(base, read, args.n)
        with closing(run(plan, contenders(settings, drafts, models))) as found:
            samples = list(track(found, "measuring", total=len(plan), console=Console(stderr=True)))
    return compare(samples, methods)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drafts", nargs="+", help=f"draft models and heads ({', '.join(HEADS)})")
    parser.add_argument("-m", "--model", help="their target; a copy of the demo model if not given")
    parser.add_argument("--kind", default="F16", help="precision of the demo model")
    parser.add_argument("--prompts", default=str(SPEC_BENCH) if SPEC_BENCH.exists() else None)
    parser.add_argument("--limit", type=int, default=2, help="prompts of each category")
    parser.add_argument("-n", type=int, default=192, help="tokens of an answer")
    parser.add_argument("--temp", type=float, default=0.0)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("-t", "--threads", type=int, default=2)
    args = parser.parse_args()
    drafts = {Path(path).stem: needed(path, "a draft or a head") for path in args.drafts}
    target = needed(args.model, "the target") if args.model else demo_copy(args.kind)[0]
    found = measure(args, target, drafts)
    last = {each.category: each.speedup for each in found if each.method == [*drafts][-1]}
    table = Table("category", "draft", "speed-up", "median", "accepted", "per step", "same", "against the last")
    for each in found:
        if each.method != NONE:
            accepted = "" if each.acceptance is None else f"{each.acceptance:.2f}"
            numbers = (f"{each.speedup:.3f}", f"{each.median:.3f}", accepted, f"{each.tokens_per_step:.2f}")
            ratio = f"{each.speedup / last[each.category]:.3f}"
            table.add_row(each.category, each.method, *numbers, f"{each.n_same}/{each.n_jobs}", ratio)
    Console(width=120).print(table)
    rows = [(e.category, e.method, round(e.speedup, 4), round(e.median, 4)) for e in found]
    print(json.dumps({"target": Path(target).name, "n": args.n, "slots": args.slots, "temp": args.temp, "rows": rows}))


if __name__ == "__main__":
    guarded(main)
