"""Is the text the same, to the byte, whatever drafts? Every drafter x sampling x slots x precision, against no drafter.

python -m benchmarks.exactness --prompts 40 -n 12 --kinds Q4_1,Q8_0
python -m benchmarks.exactness --drafters ngram-map-k,ngram-mod+suffix,suffix+model

Texts are short, so look-ups are set to match short runs of tokens: otherwise they would draft nothing.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import Any

from rich.console import Console
from rich.progress import track

from benchmarks.common import draft_model
from paceline import Engine
from paceline.bench.suite import SUITE
from paceline.config import (
    ContextParams,
    DrafterSettings,
    EngineParams,
    ModelParams,
    NgramModParams,
    NgramParams,
    Settings,
)
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


def settings(kind: str, drafter: str, n_slots: int) -> Settings:
    """By the names this benchmark uses: none, auto, self, model, or types joined with +."""
    path, _ = demo_copy(kind)
    types = {"none": [], "auto": ["suffix", "model"], "self": ["model"]}.get(drafter, drafter.split("+"))
    draft = path if drafter == "self" else draft_model()
    context = ContextParams(n_ctx=1024 * n_slots, n_threads=2)
    return Settings(
        model=ModelParams(path=path),
        draft=ModelParams(path=draft) if "model" in types else None,
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


def run(
    kind: str, drafter: str, n_slots: int, texts: list[str], n: int, console: Console
) -> tuple[list[str], Counter[str]]:
    """All texts in a fixed order, and how many tokens were drafted and accepted, greedy and sampled."""
    counts: Counter[str] = Counter()
    out = []
    with Engine.from_settings(settings(kind, drafter, n_slots)) as engine:
        jobs = [(engine.tokenize(text)[:MAX_PROMPT], sampling) for sampling in SAMPLINGS for text in texts]
        running = [engine.generate(tokens, max_tokens=n, **sampling) for tokens, sampling in jobs]
        label = f"{kind} {drafter} x{n_slots}"
        for generation, (_, sampling) in track(list(zip(running, jobs, strict=True)), label, console=console):
            out.append(generation.text())
            assert generation.finish
            timings = generation.finish.timings
            mode = "sampled" if sampling["temperature"] else "greedy"
            counts[f"{mode}_drafted"] += timings.draft_n
            counts[f"{mode}_accepted"] += timings.draft_n_accepted
    return out, counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("-n", type=int, default=12)
    parser.add_argument("--kinds", default="Q4_1,Q8_0")
    parser.add_argument("--drafters", default="ngram-simple,model,self,auto")
    parser.add_argument("--slots", default="1,4")
    args = parser.parse_args()
    console = Console(stderr=True)
    texts = [prompt.text for prompt in SUITE[: args.prompts]]
    result: dict[str, Any] = {"n_prompts": len(texts), "n_tokens": args.n, "rows": []}
    for kind in args.kinds.split(","):
        expected, _ = run(kind, "none", 1, texts, args.n, console)
        for n_slots in map(int, args.slots.split(",")):
            for drafter in (["none"] if n_slots > 1 else []) + args.drafters.split(","):
                got, counts = run(kind, drafter, n_slots, texts, args.n, console)
                same = sum(a == b for a, b in zip(expected, got, strict=True))
                rates = {m: counts[f"{m}_accepted"] / max(1, counts[f"{m}_drafted"]) for m in ("greedy", "sampled")}
                row = {"kind": kind, "drafter": drafter, "slots": n_slots, "same": same, "of": len(expected), **rates}
                row["drafted"] = counts["greedy_drafted"] + counts["sampled_drafted"]
                result["rows"].append(row)
                print(
                    f"{kind:5} {drafter:24} {n_slots} slots: {same}/{len(expected)} identical, "
                    f"drafted {row['drafted']:6}, accepted {rates['greedy']:.4f} / {rates['sampled']:.4f}",
                    flush=True,
                )
    result["all_identical"] = all(row["same"] == row["of"] for row in result["rows"])
    print(json.dumps(result))


if __name__ == "__main__":
    main()
