"""Is the text the same, to the byte, whatever drafts? Every drafter x sampling x slots x precision, against no drafter.

python -m benchmarks.exactness --prompts 40 -n 24 --kinds Q4_1,Q8_0
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
from paceline.models import demo_copy

SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    *({"temperature": 0.8, "seed": seed} for seed in (1, 2, 3)),
]
MAX_PROMPT = 96


def drafter_options(name: str, model: str) -> dict[str, Any]:
    """Engine options by the names this benchmark uses: none, auto, self, model, or look-up types joined with +."""
    if name == "none":
        return {"spec_types": []}
    if name == "auto":
        return {"draft": draft_model()}
    if name == "self":
        return {"spec_types": ["draft-simple"], "draft": model, "spec_policy": "fixed"}
    types = ["draft-simple" if part == "model" else part for part in name.split("+")]
    draft = draft_model() if "draft-simple" in types else None
    return {"spec_types": types, "draft": draft, "spec_policy": "fixed"}


def run(
    kind: str, drafter: str, n_slots: int, texts: list[str], n: int, console: Console
) -> tuple[list[str], Counter[str]]:
    """All texts in a fixed order, and how many tokens were drafted and accepted, greedy and sampled."""
    model, _ = demo_copy(kind)
    counts: Counter[str] = Counter()
    out = []
    label = f"{kind} {drafter} x{n_slots}"
    with Engine(
        model, n_ctx=1024 * n_slots, n_slots=n_slots, n_threads=2, exact=True, **drafter_options(drafter, model)
    ) as engine:
        jobs = [(engine.tokenize(text)[:MAX_PROMPT], sampling) for sampling in SAMPLINGS for text in texts]
        running = [engine.generate(tokens, max_tokens=n, **sampling) for tokens, sampling in jobs]
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
    parser.add_argument("-n", type=int, default=24)
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
