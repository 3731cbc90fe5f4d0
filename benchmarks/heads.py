"""Heads that read the target: what they cost, by kind. Reading a long prompt, drafting, and a head that is no use.

    python -m benchmarks.heads [--kind F16] [--prompt 2000] [--rounds 3]
    python -m benchmarks.heads -m TARGET.gguf --head HEAD.gguf

Without a head of your own they are of random weights, beside the target or, for MTP, in a model of random weights of
its shape: they guess nothing, and cost what trained ones do. A trained one is given with --head, or is in the target's
own file; then `auto_vs_none` is what it gains.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common import guarded, inside, needed, prompts
from benchmarks.head_files import HEADS, with_mtp
from paceline import Engine
from paceline.config import ContextParams, EngineParams, ModelParams, Settings
from paceline.drafters.base import DraftRequest
from paceline.drafters.reader import HeadDrafter
from paceline.engine.request import Timings
from paceline.library import between_steps
from paceline.llama.shared import SharedModels
from paceline.models import demo_copy
from paceline.planner.policy import AutoPolicy
from paceline.process.gguf_check import check_gguf
from paceline.process.heads import has_blocks, kind_of

USUAL_ANSWER = 256  # tokens
LITERAL = {"n_max": 4, "p_min": 0.0}


@dataclass(frozen=True, slots=True)
class Case:
    """A drafter, the target, and the head's file where it has one."""

    name: str
    target: str
    head: str | None = None

    def settings(self, *, drafts: bool, policy: str, n_ctx: int, threads: int) -> Settings:
        types = (self.name,) if drafts else ()
        context = ContextParams(n_ctx=n_ctx, n_threads=threads)
        model = ModelParams(path=self.target)
        draft = ModelParams(path=self.head) if self.head and drafts else None
        engine = EngineParams(spec_types=types, spec_policy=policy)
        return Settings(model=model, draft=draft, context=context, draft_context=context, engine=engine)


@dataclass(slots=True)
class Measured:
    """Of one head: seconds by what was done, with it and without, in turns."""

    prompt_ms: list[float] = field(default_factory=list)
    prompt_ms_plain: list[float] = field(default_factory=list)
    reading_ms: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    draft_ms: float = 0.0
    n_drafted: int = 0
    n_accepted: int = 0
    n_predicted: int = 0
    n_steps: int = 0

    def result(self, n_prompt: int) -> dict[str, float]:
        plain, reading = median(self.prompt_ms_plain), median(self.reading_ms)
        slower = median(b / a for a, b in zip(self.prompt_ms_plain, self.prompt_ms, strict=True)) - 1
        return {
            "prompt_ms": round(plain, 1),
            "prompt_slower_%": round(100 * slower, 2),
            "reading_ms": round(reading, 2),
            "reading_us_per_prompt_token": round(1e3 * reading / n_prompt, 1),
            "together_%": round(100 * (slower + reading / plain), 2),
            "ms_per_drafted_token": round(self.draft_ms / max(1, self.n_drafted), 3),
            "accepted": round(self.n_accepted / max(1, self.n_drafted), 3),
            "tokens_per_step": round(self.n_predicted / max(1, self.n_steps), 3),
            "auto_vs_none": round(median(self.ratios), 3),
        }


def answer(engine: Engine, prompt: list[int], n: int, **how: object) -> Timings:
    generation = engine.generate(
        prompt, max_tokens=n, temperature=0, ignore_eos=True, cache_prompt=False, speculative=how or None
    )
    for _ in generation:
        pass
    assert generation.finish
    return generation.finish.timings


def measure(case: Case, args: argparse.Namespace) -> dict[str, float]:
    n_ctx, found = args.prompt + 512, Measured()
    with ExitStack() as stack:
        models = stack.enter_context(SharedModels())

        def opened(*, drafts: bool, policy: str = "auto") -> Engine:
            settings = case.settings(drafts=drafts, policy=policy, n_ctx=n_ctx, threads=args.threads)
            engine = stack.enter_context(Engine.from_settings(settings, models=models))
            inside(engine).loop.idle = None  # or it would measure its costs while another engine is timed
            return engine

        none, auto, trusting = opened(drafts=False), opened(drafts=True), opened(drafts=True)
        fixed = opened(drafts=True, policy="fixed")
        text = [token for prompt in prompts(8) for token in none.tokenize(prompt.text)]
        long = (text * (1 + args.prompt // len(text)))[: args.prompt]
        for round_ in track(range(args.rounds + 1), case.name, console=Console(stderr=True)):
            pair = Measured()
            trust(trusting, case.name)
            for engine in (none, trusting) if round_ % 2 else (trusting, none):
                (pair.prompt_ms_plain if engine is none else pair.prompt_ms).append(begin(engine, long))
            pair.reading_ms.append(between_steps(lambda: reading_ms(trusting, case.name)))
            if round_:  # the first one warms up
                found.prompt_ms += pair.prompt_ms
                found.prompt_ms_plain += pair.prompt_ms_plain
                found.reading_ms += pair.reading_ms
        for prompt in list(short_prompts(none, args.rounds)):
            count(found, answer(fixed, prompt, args.n // 4, **LITERAL))
            found.ratios.append(compare(none, auto, prompt, args.n))
    return found.result(args.prompt)


def trust(engine: Engine, name: str) -> None:
    """As if the head had been right all along: else nobody would read for one that never is."""
    policy = inside(engine).parts.policy
    assert isinstance(policy, AutoPolicy)
    between_steps(lambda: policy.set_agreement(name, [(0.9, True)] * 200, 0.0))


def begin(engine: Engine, prompt: list[int]) -> float:
    """Milliseconds until an answer of the usual length begins; the rest of it is not waited for."""
    generation = engine.generate(prompt, max_tokens=USUAL_ANSWER, temperature=0, ignore_eos=True, cache_prompt=False)
    next(iter(generation))
    generation.cancel()
    while not generation.finish:
        generation.take()
    return generation.finish.timings.prompt_ms


def reading_ms(engine: Engine, name: str) -> float:
    """What a head's first question takes longer than the next one: it reads as much of the prompt as it was given."""
    drafter, slot = inside(engine).core.drafting.drafters[name], inside(engine).core.slots[0]
    assert isinstance(drafter, HeadDrafter)
    for memory in drafter.memories:
        memory.cut(slot.seq, 0)
    text = [*slot.tokens[: slot.n_computed], 0]  # whichever token comes next
    request = DraftRequest(slot.seq, text, 1, p_min=0.0, n_left=USUAL_ANSWER)
    times = []
    for _ in range(3):
        start = perf_counter()
        assert drafter.draft([request])[0].tokens
        times.append(1e3 * (perf_counter() - start))
    return max(0.0, times[0] - times[2])


def short_prompts(engine: Engine, n: int) -> Iterator[list[int]]:
    for prompt in prompts(2 * n):
        yield engine.tokenize(prompt.text)[:400]


def count(found: Measured, timings: Timings) -> None:
    found.draft_ms += sum(each.draft_ms for each in timings.drafters)
    found.n_drafted += timings.draft_n
    found.n_accepted += timings.draft_n_accepted
    found.n_predicted += timings.predicted_n - 1
    found.n_steps += timings.n_steps


def compare(none: Engine, auto: Engine, prompt: list[int], n: int) -> float:
    """How many times as fast `auto` writes: before and after are none's, since a machine has its moods."""
    a, b, c = (answer(engine, prompt, n).predicted_ms for engine in (none, auto, none))
    return (a + c) / 2 / b


def cases(args: argparse.Namespace, folder: Path) -> list[Case]:
    target = needed(args.model, "the target") if args.model else demo_copy(args.kind)[0]
    if args.head:
        return [Case(kind_of(check_gguf(needed(args.head, "the head"))) or "draft-mtp", target, args.head)]
    if has_blocks(check_gguf(target)):
        return [Case("draft-mtp", target)]
    wanted = args.only.split(",") if args.only else [*HEADS, "draft-mtp"]
    made = [Case(name, target, HEADS[name](folder / f"{name}.gguf", target)) for name in wanted if name in HEADS]
    return made + ([Case("draft-mtp", with_mtp(folder / "mtp.gguf", target))] if "draft-mtp" in wanted else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", help="a target of your own")
    parser.add_argument("--head", help="its head; none where it is in the target's file")
    parser.add_argument("--kind", default="F16", help="precision of the demo model")
    parser.add_argument("--only", default="", help="drafters to measure, by name")
    parser.add_argument("--prompt", type=int, default=2000, help="tokens of the long prompt")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("-n", type=int, default=128, help="tokens of an answer")
    parser.add_argument("-t", "--threads", type=int, default=2)
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        results = {case.name: measure(case, args) for case in cases(args, Path(folder))}
    table = Table("", *results)
    for row in next(iter(results.values())):
        table.add_row(row, *(str(result[row]) for result in results.values()))
    Console().print(table)
    print(json.dumps(results))


if __name__ == "__main__":
    guarded(main)
