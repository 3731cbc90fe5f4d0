"""Everything one wants to know of a machine that is lent for minutes: in one run, a table and JSON after every part.

python -m benchmarks.gpu -m model.gguf -md draft.gguf --prompts spec_bench.jsonl --json gpu.json
python -m benchmarks.gpu -m model.gguf --parts curves,bench --methods none,auto,suffix --seconds 60

curves   what a batch costs: its size again and again, taking turns with 1, and alone among plain steps
bench    the methods against none by category, as `paceline bench` does it
slots    none and auto with eight slots
sampled  none and auto at temperature 0.8
exact    texts of suffix, draft model and auto in exact mode, one and four slots, against none
steps    where a step's time goes: launching, waiting and copying, drafting, Python

With six parts of 75 seconds it is done in eight minutes. A part that fails is reported and the next one runs.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console

import paceline
from benchmarks import batches, bits, steps
from benchmarks.common import guarded, needed
from paceline.bench import jobs, report, suite
from paceline.bench.methods import parse_all
from paceline.bench.run import Plan, opener, run
from paceline.config import ContextParams, EngineParams, ModelParams, SamplingParams, Settings
from paceline.library import default_types
from paceline.llama.lib import system, versions
from paceline.llama.shared import SharedModels

N_SLOTS = 8
TEMPERATURE = 0.8
FEW = ("none", "auto")
GREEDY = SamplingParams(temperature=0.0, seed=1)
WIDTH = 132


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """What all parts share: the models, the prompts, and how much of everything."""

    models: SharedModels
    settings: Settings
    prompts: tuple[suite.SuitePrompt, ...]
    methods: tuple[str, ...]
    limit: int
    n_tokens: int
    tail: bool
    seconds: float
    console: Console

    def with_slots(self, n_slots: int) -> Settings:
        return replace(self.settings, engine=replace(self.settings.engine, n_slots=n_slots))

    def jobs(self, settings: Settings) -> tuple[jobs.Job, ...]:
        chosen = jobs.choose(self.prompts, (), self.limit, settings.engine.n_slots, tail=self.tail)
        return jobs.read(settings, chosen, self.n_tokens, self.models)


def curves(kit: Kit) -> dict[str, Any]:
    """Of target and draft, each with half the time."""
    params = [params for params in (kit.settings.model, kit.settings.draft) if params]
    found = {}
    for each in params:
        name = Path(each.path).name
        curve = batches.measure(kit.models.get(each), kit.settings.context, kit.seconds / len(params))
        found[name] = batches.as_json(curve)
        kit.console.print(batches.table(name, curve))
    return found


def compare(kit: Kit, methods: tuple[str, ...], n_slots: int, sampling: SamplingParams) -> dict[str, Any]:
    """As `paceline bench`, ended when the time is up."""
    settings = kit.with_slots(n_slots)
    read = kit.jobs(settings)
    plan = Plan(methods=parse_all(methods), jobs=read, n_tokens=kit.n_tokens, sampling=sampling, seconds=kit.seconds)
    with closing(run(plan, opener(jobs.with_room(settings, read, kit.n_tokens), kit.models))) as measured:
        samples = list(measured)
    rows, found = report.compare(samples, plan.methods), report.hindsight(samples, plan.methods)
    kit.console.print(report.table(rows))
    if found:
        kit.console.print(report.hindsight_line(found))
    figures = [{name: value for name, value in asdict(s).items() if name != "texts"} for s in samples]
    about = {"n_slots": n_slots, "temperature": sampling.temperature, "n_jobs": len(read)}
    return {**about, **report.summary(rows, found), "samples": figures}


def bench(kit: Kit) -> dict[str, Any]:
    return compare(kit, kit.methods, 1, GREEDY)


def slots(kit: Kit) -> dict[str, Any]:
    return compare(kit, FEW, N_SLOTS, GREEDY)


def sampled(kit: Kit) -> dict[str, Any]:
    return compare(kit, FEW, 1, replace(GREEDY, temperature=TEMPERATURE))


def exact(kit: Kit) -> dict[str, Any]:
    rows = bits.measure(kit.settings, kit.prompts, kit.n_tokens, kit.models, kit.seconds)
    kit.console.print(bits.table(rows))
    return {"rows": [asdict(row) for row in rows]}


def anatomy(kit: Kit) -> dict[str, Any]:
    read = kit.jobs(kit.settings)
    base = jobs.with_room(kit.settings, read, kit.n_tokens)
    methods = parse_all([*FEW, *(("draft",) if base.draft else ())])
    found = [steps.measure(base, method, read, kit.n_tokens, kit.models, kit.seconds / 3) for method in methods]
    kit.console.print(steps.table(found))
    return {each.method: asdict(each) | {"by_size": each.sizes()} for each in found}


PARTS: dict[str, Callable[[Kit], dict[str, Any]]] = {
    "curves": curves,
    "bench": bench,
    "slots": slots,
    "sampled": sampled,
    "exact": exact,
    "steps": anatomy,
}


def attempt(name: str, kit: Kit) -> dict[str, Any]:
    """A lent machine's minutes are few: trouble in one part must not cost the others."""
    start = perf_counter()
    kit.console.rule(name)
    try:
        found = PARTS[name](kit)
    except Exception as error:
        kit.console.print_exception()
        found = {"error": f"{type(error).__name__}: {error}"}
    return {**found, "took": round(perf_counter() - start, 1)}


def settings_of(args: argparse.Namespace) -> Settings:
    context = ContextParams(n_threads=args.threads)
    return Settings(
        model=ModelParams(path=args.model),
        draft=ModelParams(path=args.draft) if args.draft else None,
        context=context,
        draft_context=context,
        engine=EngineParams(spec_types=default_types(bool(args.draft))),
    )


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-md", "--draft")
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("--prompts", help="a file in Spec-Bench's format; default: our own suite")
    parser.add_argument("--limit", type=int, default=4, help="prompts of each category")
    parser.add_argument("-n", type=int, default=96, help="tokens of each answer")
    parser.add_argument("--tail", action="store_true", help="prompts from the end of each category")
    parser.add_argument("--methods", help="of the part bench, as `paceline bench --methods`")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--seconds", type=float, default=75.0, help="for each part")
    parser.add_argument("--json", help="written after every part")
    args = parser.parse_args(words)
    unknown = set(args.parts.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"no part {sorted(unknown)[0]!r}; there are {', '.join(PARTS)}")
    args.methods = args.methods or ("none,auto,suffix,draft:4" if args.draft else "none,auto,suffix")
    return args


def measure(args: argparse.Namespace, console: Console) -> dict[str, Any]:
    result: dict[str, Any] = {
        "paceline": paceline.__version__,
        "libllama": versions(),
        "machine": f"{platform.machine()}, {system()}",
        "model": Path(args.model).name,
        "draft": Path(args.draft).name if args.draft else None,
        "n_tokens": args.n,
        "tail": args.tail,
    }
    with SharedModels() as models:
        kit = Kit(
            models=models,
            settings=settings_of(args),
            prompts=suite.load(args.prompts) if args.prompts else suite.SUITE,
            methods=tuple(args.methods.split(",")),
            limit=args.limit,
            n_tokens=args.n,
            tail=args.tail,
            seconds=args.seconds,
            console=console,
        )
        for name in args.parts.split(","):
            result[name] = attempt(name, kit)
            if args.json:
                Path(args.json).write_text(json.dumps(result) + "\n")
    return result


def main(words: list[str] | None = None) -> None:
    args = arguments(words)
    needed(args.model, "a model")
    if args.draft:
        needed(args.draft, "a draft model")
    result = measure(args, Console(width=WIDTH, highlight=False))
    brief = {name: without_samples(value) for name, value in result.items()}
    print(json.dumps(brief), flush=True)


def without_samples(value: Any) -> Any:
    return {k: v for k, v in value.items() if k != "samples"} if isinstance(value, dict) else value


if __name__ == "__main__":
    guarded(main)
