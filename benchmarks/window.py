"""The draft's sliding window: does drafting stay as good and as cheap after it has filled? And long prompts.

python -m benchmarks.window [-n 4000] [--windows 512,2048] [--texts 1] [--long-prompt 20000]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.common import chat, draft_model, guarded, inside
from paceline import Engine
from paceline.models import demo_copy

# Greedy, but kept from repeating itself: a small model falls into a loop otherwise, where every draft is right. Exact,
# so that both windows write the same text; four tokens whatever their confidence, so that drafting time compares.
GREEDY: dict[str, Any] = {"temperature": 0, "dry_multiplier": 1.0, "dry_penalty_last_n": -1, "ignore_eos": True}
DRAFT_ONLY: dict[str, Any] = {"spec_types": ["draft-simple"], "spec_policy": "fixed", "n_threads": 2}
LITERAL = {"n_max": 4, "p_min": 0.0}
PROMPTS = [
    "Write a very long story about a caravan that crosses a desert, with many people who tell each other stories.",
    "Write a very long guide for people who want to grow vegetables, from the soil to the kitchen, month by month.",
    "Write a very long history of an invented country, its towns, its rulers, its wars, its songs and its trade.",
    "Explain in very great length how a computer works, from sand to the screen, for a curious child.",
]


@dataclass(slots=True)
class Mark:
    """Counters at one moment of a generation."""

    n_tokens: int
    n_steps: int
    n_drafted: int
    n_accepted: int
    draft_ms: float


def generate(kind: str, draft: str, window: int, n: int, prompt: str) -> tuple[list[Mark], float]:
    """Counters after every step, and the draft context's memory in MiB."""
    path, _ = demo_copy(kind)
    marks = []
    with (
        Engine(path, draft=draft, draft_window=window, n_ctx=n + 256, exact=True, **DRAFT_ONLY) as engine,
        Progress(console=Console(stderr=True)) as bar,
    ):
        task = bar.add_task(f"-cd {window}", total=n)
        stats = next(iter(inside(engine).core.drafting.stats.values()))
        generation = engine.generate(chat(engine, prompt), max_tokens=n, speculative=LITERAL, **GREEDY)
        n_tokens = 0
        for n_steps, chunk in enumerate(generation):
            n_tokens += len(chunk.pieces)
            marks.append(Mark(n_tokens, n_steps, stats.n_tokens, stats.n_accepted_tokens, stats.draft_ms))
            bar.update(task, completed=n_tokens)
        memory = inside(engine).parts.computing["draft-simple"].main.n_bytes_cache / 2**20
    return marks, memory


def part(marks: list[Mark], start: int, end: int) -> dict[str, float]:
    """Rates between two token counts."""
    a = next(mark for mark in marks if mark.n_tokens >= start)
    b = next((mark for mark in marks if mark.n_tokens >= end), marks[-1])
    drafted = max(1, b.n_drafted - a.n_drafted)
    return {
        "tokens_per_step": (b.n_tokens - a.n_tokens) / (b.n_steps - a.n_steps),
        "draft_ms_per_token": (b.draft_ms - a.draft_ms) / drafted,
        "acceptance": (b.n_accepted - a.n_accepted) / drafted,
    }


def mean(texts: list[dict[str, float]]) -> dict[str, float]:
    """The same rates, over several texts."""
    return {name: fmean(rates[name] for rates in texts) for name in texts[0]}


def long_prompt(kind: str, draft: str, n_tokens: int) -> dict[str, Any]:
    """A prompt far longer than the draft's batch and window."""
    path, _ = demo_copy(kind)
    with Engine(path, draft=draft, n_ctx=n_tokens + 256, **DRAFT_ONLY) as engine:
        tokens = engine.tokenize("The caravan went on, and on the next day it rained. " * (n_tokens // 8))[:n_tokens]
        generation = engine.generate(tokens, max_tokens=32, temperature=0, ignore_eos=True)
        generation.text()
        assert generation.finish
        t = generation.finish.timings
        return {
            "prompt_n": t.prompt_n,
            "prompt_s": t.prompt_ms / 1e3,
            "predicted_n": t.predicted_n,
            "draft_n": t.draft_n,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", default="Q8_0")
    parser.add_argument("--draft", default=None)
    parser.add_argument("-n", type=int, default=4000)
    parser.add_argument("--windows", default="512,2048")
    parser.add_argument("--texts", type=int, default=1, help=f"how many texts to write, up to {len(PROMPTS)}")
    parser.add_argument("--long-prompt", type=int, default=0)
    args = parser.parse_args()
    draft = draft_model(args.draft)
    result: dict[str, Any] = {}
    table = Table("window", "part", "tokens per step", "draft ms per drafted token", "acceptance", "cache MiB")
    windows = [int(size) for size in args.windows.split(",")]
    texts: dict[int, list[list[Mark]]] = {window: [] for window in windows}
    memory: dict[int, float] = {}
    for prompt in PROMPTS[: args.texts]:
        for window in windows:
            marks, memory[window] = generate(args.kind, draft, window, args.n, prompt)
            texts[window].append(marks)
    for window in windows:
        spans = {"first": (window, window + 1000), "last": (args.n - 1000, args.n), "whole": (1, args.n)}
        parts = {name: mean([part(marks, *span) for marks in texts[window]]) for name, span in spans.items()}
        by_text = [part(marks, 1, args.n)["acceptance"] for marks in texts[window]]
        result[str(window)] = {**parts, "acceptance_by_text": by_text, "cache_mib": memory[window]}
        for name, p in parts.items():
            table.add_row(str(window), name, *(f"{value:.3f}" for value in p.values()), f"{memory[window]:.1f}")
    for name, row in result.items():
        if int(name) + 2000 <= args.n:
            row["ratio_tokens_per_step"] = row["last"]["tokens_per_step"] / row["first"]["tokens_per_step"]
            row["ratio_draft_ms"] = row["last"]["draft_ms_per_token"] / row["first"]["draft_ms_per_token"]
    Console().print(table)
    if args.long_prompt:
        result["long_prompt"] = long_prompt(args.kind, draft, args.long_prompt)
        print(f"a prompt of {args.long_prompt} tokens: {result['long_prompt']}")
    print(json.dumps(result))


if __name__ == "__main__":
    guarded(main)
