"""Does the draft model's use of the target's own noise pay? Acceptance at a temperature, with it and without.

python -m benchmarks.noise [--prompts 14] [-n 64] [--temp 0.8]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.common import chat, draft_model, guarded, prompts
from paceline import Engine
from paceline.engine import drafting
from paceline.models import demo_copy


def acceptance(engine: Engine, texts: list[str], n: int, temp: float) -> dict[str, float]:
    """Drafts of up to four tokens, whatever their confidence, so that both kinds are judged on the same terms."""
    drafted = accepted = steps = tokens = 0
    for seed, text in enumerate(texts):
        wishes = {"n_max": 4, "p_min": 0.0}
        g = engine.generate(chat(engine, text), max_tokens=n, temperature=temp, seed=seed, speculative=wishes)
        g.text()
        assert g.finish
        t = g.finish.timings
        drafted, accepted, steps, tokens = (
            drafted + t.draft_n,
            accepted + t.draft_n_accepted,
            steps + t.n_steps,
            tokens + t.predicted_n,
        )
    return {"acceptance": accepted / drafted, "tokens_per_step": tokens / steps, "drafted": drafted}


def first_token_fit(engine: Engine, text: str, n: int) -> dict[str, float]:
    """The engine's first tokens over many seeds against the target's softmax: chi-square per degree of freedom."""
    prompt = chat(engine, text)
    plain: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    first = next(iter(engine.generate(prompt, max_tokens=1, temperature=0, logprobs=engine.vocab.n_tokens)))
    p = np.zeros(engine.vocab.n_tokens)
    for token, logprob in first.pieces[0].token.top_logprobs:
        p[token] = np.exp(logprob)
    counts = np.zeros(engine.vocab.n_tokens)
    for seed in range(n):
        chunk = next(iter(engine.generate(prompt, max_tokens=1, seed=seed, **plain)))
        counts[chunk.pieces[0].token.id] += 1
    big = p * n >= 5
    observed, expected = np.append(counts[big], counts[~big].sum()), np.append(p[big], p[~big].sum()) * n
    freedom = len(observed) - 1
    statistic = float(((observed - expected) ** 2 / np.maximum(expected, 1e-9)).sum())
    return {"chi_square": statistic, "freedom": freedom, "sigmas": (statistic - freedom) / (2 * freedom) ** 0.5}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", default="Q8_0")
    parser.add_argument("--prompts", type=int, default=14)
    parser.add_argument("-n", type=int, default=64)
    parser.add_argument("--temp", type=float, default=0.8)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--draft", help="draft model of the same vocabulary")
    args = parser.parse_args()
    draft = draft_model(args.draft)
    texts = [prompt.text for prompt in prompts(args.prompts)]
    path, _ = demo_copy(args.kind)
    shared: Callable[..., Any] = drafting.noise_of
    table = Table("draft", "acceptance", "tokens per step", "drafted")
    result: dict[str, Any] = {}
    with Engine(path, draft=draft, n_ctx=4096, n_threads=2, spec_types=["draft-simple"], spec_policy="fixed") as engine:
        for name, noise in (("shared noise", shared), ("greedy", lambda *_: None)):
            drafting.noise_of = noise
            row = result[name] = acceptance(engine, texts, args.n, args.temp)
            table.add_row(name, f"{row['acceptance']:.3f}", f"{row['tokens_per_step']:.3f}", str(row["drafted"]))
        drafting.noise_of = shared
        result["fit"] = first_token_fit(engine, texts[0], args.draws)
    Console().print(table)
    print(f"first tokens of {args.draws} seeds against the softmax: {result['fit']}")
    print(json.dumps(result))


if __name__ == "__main__":
    guarded(main)
