"""Is the text the same, to the byte, whatever drafts? Every drafter x sampling x slots x precision, against no drafter.

python -m benchmarks.exactness --prompts 40 -n 12 --kinds Q4_1,Q8_0,Q4_K_M
python -m benchmarks.exactness --drafters ngram-map-k,ngram-mod+suffix,suffix+model
python -m benchmarks.exactness -m big.gguf --draft small.gguf -ngl 99 --drafters suffix,model,auto

Texts are short, so look-ups are set to match short runs of tokens: otherwise they would draft nothing. Says by which
batches each model is exact, and what that costs without a drafter.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from benchmarks.common import draft_model, guarded, needed
from paceline import Engine, Generation
from paceline.bench.suite import SUITE
from paceline.config import ContextParams, EngineParams, ModelParams, Settings
from paceline.config.drafters import DrafterSettings, NgramModParams, NgramParams
from paceline.models import demo_copy

SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    *({"temperature": 0.8, "seed": seed} for seed in (1, 2, 3)),
]
MAX_PROMPT = 32
SHORT = DrafterSettings(
    ngram_simple=NgramParams(size_n=2, size_m=6),
    ngram_map_k=NgramParams(size_n=2, size_m=6),
    ngram_map_k4v=NgramParams(size_n=2, size_m=6),
    ngram_mod=NgramModParams(n_match=3, n_min=2, n_max=8),
)


@dataclass(frozen=True)
class Subject:
    """What is measured: a model at one precision, with its draft model."""

    name: str
    model: ModelParams
    draft: str
    n_threads: int

    def settings(self, drafter: str, n_slots: int) -> Settings:
        """By the names this benchmark uses: none, auto, self, model, or types joined with +."""
        types = {"none": [], "auto": ["suffix", "model"], "self": ["model"]}.get(drafter, drafter.split("+"))
        draft = replace(self.model, path=self.model.path if drafter == "self" else self.draft)
        context = ContextParams(n_ctx=1024 * n_slots, n_threads=self.n_threads)
        return Settings(
            model=self.model,
            draft=draft if "model" in types else None,
            context=context,
            draft_context=context,
            engine=EngineParams(
                n_slots=n_slots,
                exact=True,
                spec_types=tuple("draft-simple" if name == "model" else name for name in types),
                spec_policy="auto" if drafter == "auto" else "fixed",
                drafters=SHORT,
            ),
        )


@dataclass(frozen=True)
class Run:
    """All texts in a fixed order, how many tokens were drafted and accepted, and seconds per token of the steps."""

    texts: list[str]
    counts: Counter[str]
    seconds: float
    found: str

    def rate(self, mode: str) -> float:
        return self.counts[f"{mode}_accepted"] / max(1, self.counts[f"{mode}_drafted"])


def run(settings: Settings, label: str, texts: list[str], n: int, console: Console) -> Run:
    counts: Counter[str] = Counter()
    out = []
    with Engine.from_settings(settings) as engine:
        jobs = [(engine.tokenize(text)[:MAX_PROMPT], sampling) for sampling in SAMPLINGS for text in texts]
        running = [engine.generate(tokens, max_tokens=n, **sampling) for tokens, sampling in jobs]
        for generation, (_, sampling) in track(list(zip(running, jobs, strict=True)), label, console=console):
            out.append(generation.text())
            assert generation.finish
            timings = generation.finish.timings
            mode = "sampled" if sampling["temperature"] else "greedy"
            counts[f"{mode}_drafted"] += timings.draft_n
            counts[f"{mode}_accepted"] += timings.draft_n_accepted
            counts["tokens"] += max(0, timings.predicted_n - 1)
        return Run(out, counts, engine.status().seconds / max(1, counts["tokens"]), str(engine.info.exactness))


def subjects(args: argparse.Namespace) -> list[Subject]:
    draft = draft_model(args.draft)
    paths = (
        {Path(args.model).stem: needed(args.model, "the model")}
        if args.model
        else {k: demo_copy(k)[0] for k in args.kinds.split(",")}
    )
    return [
        Subject(name, ModelParams(path=path, n_gpu_layers=args.n_gpu_layers), draft, args.threads)
        for name, path in paths.items()
    ]


def speeds(subject: Subject, texts: list[str], n: int) -> tuple[float, float]:
    """Seconds per token without a drafter in one slot, exact and not, a step of one after a step of the other."""
    exact = subject.settings("none", 1)
    quick = replace(exact, engine=replace(exact.engine, exact=False))
    with Engine.from_settings(exact) as ours, Engine.from_settings(quick) as theirs:
        both = (ours, theirs)
        running = [
            [engine.generate(engine.tokenize(text)[:MAX_PROMPT], max_tokens=n, temperature=0) for text in texts]
            for engine in both
        ]
        counts = [sum(max(0, n_written(generation) - 1) for generation in started) for started in running]
        seconds = [engine.status().seconds / max(1, count) for engine, count in zip(both, counts, strict=True)]
        return seconds[0], seconds[1]


def n_written(generation: Generation) -> int:
    generation.text()
    assert generation.finish
    return generation.finish.timings.predicted_n


def measure(subject: Subject, args: argparse.Namespace, texts: list[str], console: Console) -> list[dict[str, Any]]:
    expected = run(subject.settings("none", 1), f"{subject.name} none", texts, args.n, console)
    exact, plain = speeds(subject, texts, args.n)
    print(f"{subject.name}: {expected.found}")
    print(
        f"{subject.name}: none {1e3 * exact:.1f} ms a token, not exact {1e3 * plain:.1f}: {exact / plain:.2f} times",
        flush=True,
    )
    rows = []
    for n_slots in map(int, args.slots.split(",")):
        for drafter in (["none"] if n_slots > 1 else []) + args.drafters.split(","):
            label = f"{subject.name} {drafter} x{n_slots}"
            got = run(subject.settings(drafter, n_slots), label, texts, args.n, console)
            rows.append(row(subject.name, drafter, n_slots, expected, got) | {"times_plain": exact / plain})
    return rows


def row(name: str, drafter: str, n_slots: int, expected: Run, got: Run) -> dict[str, Any]:
    same = sum(a == b for a, b in zip(expected.texts, got.texts, strict=True))
    drafted = got.counts["greedy_drafted"] + got.counts["sampled_drafted"]
    rates = {mode: got.rate(mode) for mode in ("greedy", "sampled")}
    print(
        f"{name:8} {drafter:24} {n_slots} slots: {same}/{len(expected.texts)} identical, drafted {drafted:6}, "
        f"accepted {rates['greedy']:.4f} / {rates['sampled']:.4f}, {1e3 * got.seconds:.1f} ms a token",
        flush=True,
    )
    found = {"kind": name, "drafter": drafter, "slots": n_slots, "same": same, "of": len(expected.texts), **rates}
    return found | {"drafted": drafted, "ms_per_token": 1e3 * got.seconds, "exact": got.found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("-n", type=int, default=12)
    parser.add_argument("--kinds", default="Q4_1,Q8_0", help="precisions of the demo model")
    parser.add_argument("-m", "--model", help="this model instead")
    parser.add_argument("--draft", help="draft model of the same vocabulary")
    parser.add_argument("-ngl", "--n-gpu-layers", type=int, default=-1)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--drafters", default="ngram-simple,model,self,auto")
    parser.add_argument("--slots", default="1,4")
    args = parser.parse_args()
    console = Console(stderr=True)
    texts = [prompt.text for prompt in SUITE[: args.prompts]]
    rows = [row for subject in subjects(args) for row in measure(subject, args, texts, console)]
    identical = all(row["same"] == row["of"] for row in rows)
    print(json.dumps({"n_prompts": len(texts), "n_tokens": args.n, "rows": rows, "all_identical": identical}))


if __name__ == "__main__":
    guarded(main)
