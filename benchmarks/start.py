"""The first answers of a new process: cold, and after a start on a busy machine.

python -m benchmarks.start cold [--kind Q8_0] [--prompts 8] [-n 40]     # each prompt in a process of its own
python -m benchmarks.start busy [--kind Q8_0] [--requests 20]

cold: auto against none on the very first answer, their steps taking turns.
busy: three other processes keep the cores busy while an engine opens, and are gone then. After some requests it is
compared with one that was opened undisturbed, their steps taking turns.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks.common import draft_model, guarded, prompts
from paceline import Engine, garbage
from paceline.generation import Generation
from paceline.library import between_steps
from paceline.models import cache_folder, demo_copy

BUSY = "while True: pass"
N_BUSY = 3
N_COMPARED = 8


def open_engine(kind: str, draft: str | None = None) -> Engine:
    path, _ = demo_copy(kind)
    if draft is None:
        return Engine(path, n_ctx=1024, n_threads=2, spec_types=())
    return Engine(path, draft=draft, n_ctx=1024, n_threads=2)


def together(engines: Sequence[Engine], text: str, n: int) -> list[float]:
    """Seconds that each takes for the same answer."""
    before = [engine.status().seconds for engine in engines]

    def start() -> list[Generation]:
        return [
            engine.generate(engine.tokenize(text)[:400], max_tokens=n, temperature=0, ignore_eos=True)
            for engine in engines
        ]

    for generation in between_steps(start):
        generation.text()
    return [engine.status().seconds - b for engine, b in zip(engines, before, strict=True)]


def cold_one(kind: str, draft: str, at: int, n: int) -> None:
    with open_engine(kind) as none, open_engine(kind, draft) as auto:
        garbage.settle()  # as `serve` and `run` do
        plain, own = together([none, auto], prompts(at + 1)[at].text, n)
    print(json.dumps(plain / own))


def cold(kind: str, draft: str, n_prompts: int, n: int) -> None:
    ratios = []
    for at in range(n_prompts):
        options = ["--kind", kind, "--draft", draft, "--prompts", str(at), "-n", str(n)]
        command = [sys.executable, "-m", "benchmarks.start", "cold-one", *options]
        forget_costs()
        out = subprocess.run(command, capture_output=True, text=True, check=True)
        ratios.append(float(out.stdout.splitlines()[-1]))
        print(f"{kind} prompt {at}: first answer at {ratios[-1]:.3f} of none", flush=True)
    print(json.dumps({"kind": kind, "n_tokens": n, "ratios": ratios, "lowest": min(ratios)}))


def forget_costs() -> None:
    """What earlier runs measured does not count."""
    shutil.rmtree(cache_folder() / "costs", ignore_errors=True)


def busy(kind: str, draft: str, n_requests: int) -> None:
    texts = [prompt.text for prompt in prompts(n_requests + N_COMPARED)]
    with ExitStack() as stack:
        others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(N_BUSY)]
        try:
            disturbed = stack.enter_context(open_engine(kind, draft))
        finally:
            for other in others:
                other.kill()
                other.wait()
        first = disturbed.explain()
        for text in texts[:n_requests]:
            together([disturbed], text, 64)
        clean = stack.enter_context(open_engine(kind, draft))
        for text in texts[:n_requests]:
            together([clean], text, 64)
        found = [together([disturbed, clean], text, 128) for text in texts[n_requests:]]
        last, undisturbed = disturbed.explain(), clean.explain()
    a, b = (sum(pair[i] for pair in found) for i in range(2))
    print(f"{kind}: after {n_requests} requests at {b / a:.3f} of an engine that was opened undisturbed")
    curves = {"at first": first, "now": last, "undisturbed": undisturbed}
    print(json.dumps({"ratio": b / a, "target_ms": {name: why["target_ms"] for name, why in curves.items()}}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["cold", "cold-one", "busy"])
    parser.add_argument("--kind", default="Q8_0")
    parser.add_argument("--draft", help="draft model of the same vocabulary")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("-n", type=int, default=40)
    args = parser.parse_args()
    draft = draft_model(args.draft)
    demo_copy(args.kind)
    if args.what == "busy":
        busy(args.kind, draft, args.requests)
    elif args.what == "cold":
        cold(args.kind, draft, args.prompts, args.n)
    else:
        cold_one(args.kind, draft, args.prompts, args.n)


if __name__ == "__main__":
    guarded(main)
