"""paceline's server beside llama.cpp's, over HTTP: the same model, draft and prompts, an answer of one after an answer
of another.

    python -m benchmarks.beside --server PATH/TO/llama-server --draft DRAFT.gguf [-m TARGET.gguf] [--limit 2] [-n 192]

Speeds are tokens after the first by the client's clock, greedy, streamed, each answer begun on a quiet machine: ours
measures its costs again when it has nothing to do. Two rows compare each program with itself without drafts, two the
programs with each other.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import httpx
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.common import SPEC_BENCH, draft_model, guarded, needed, until_quiet
from benchmarks.workers import free_port
from paceline.bench.jobs import choose
from paceline.bench.run import rotated
from paceline.bench.suite import SUITE, SuitePrompt, load
from paceline.errors import ConfigError
from paceline.models import demo_copy

START_S = 120.0
OVERALL = "overall"
DRAFT_FLAGS = ("--spec-draft-n-max", "4", "--spec-draft-p-min", "0.4")
"""What did best of llama-server's own settings on this pair of models."""


@dataclass(slots=True)
class Program:
    """One server, and seconds and tokens of its answers by category."""

    name: str
    url: str
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    tokens: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    texts: list[str] = field(default_factory=list)

    def answer(self, prompt: SuitePrompt, n: int) -> None:
        """The first token ends the reading of the prompt; what comes after it counts."""
        body = {
            "messages": [{"role": "user", "content": prompt.text}],
            "max_tokens": n,
            "temperature": 0,
            "stream": True,
            "ignore_eos": True,
            "cache_prompt": False,
            "stream_options": {"include_usage": True},
        }
        pieces, first, n_tokens, end = list[str](), 0.0, 0, 0.0
        with httpx.stream("POST", f"{self.url}/v1/chat/completions", json=body, timeout=300) as reply:
            reply.raise_for_status()
            for line in reply.iter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line[6:])
                text = (event["choices"][0]["delta"].get("content") or "") if event.get("choices") else ""
                if text:
                    end = time.perf_counter()
                    first = first or end
                    pieces.append(text)
                n_tokens = (event.get("usage") or {}).get("completion_tokens", n_tokens)
        self.texts.append("".join(pieces))
        for name in (prompt.category, OVERALL):
            self.seconds[name].append(max(1e-6, end - first))
            self.tokens[name].append(n_tokens - 1)

    def speed(self, category: str) -> float:
        return sum(self.tokens[category]) / sum(self.seconds[category])

    def ratios(self, other: Program, category: str) -> list[float]:
        own, others = (
            [n / s for n, s in zip(each.tokens[category], each.seconds[category], strict=True)]
            for each in (self, other)
        )
        return [mine / theirs for mine, theirs in zip(own, others, strict=True)]


@contextmanager
def started(name: str, words: list[str]) -> Iterator[Program]:
    port = free_port()
    with subprocess.Popen(
        [*words, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            program = Program(name, f"http://127.0.0.1:{port}")
            wait(program, process)
            yield program
        finally:
            process.terminate()


def wait(program: Program, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            if httpx.get(f"{program.url}/health", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise ConfigError(f"{program.name} did not start")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="llama-server, built for this machine")
    parser.add_argument("--draft", help="draft model of the same vocabulary")
    parser.add_argument("-m", "--model", help="the target; a copy of the demo model if not given")
    parser.add_argument("--kind", default="F16", help="precision of the demo model")
    parser.add_argument("--prompts", default=str(SPEC_BENCH) if SPEC_BENCH.exists() else None)
    parser.add_argument("--limit", type=int, default=2, help="prompts of each category, from its end")
    parser.add_argument("-n", type=int, default=192, help="tokens of an answer")
    parser.add_argument("-t", "--threads", type=int, default=2)
    args = parser.parse_args()
    model = needed(args.model, "the target") if args.model else demo_copy(args.kind)[0]
    draft = draft_model(args.draft)
    common = ["-m", model, "-c", "4096", "-np", "1", "-t", str(args.threads)]
    theirs, ours = [needed(args.server, "llama-server")], [sys.executable, "-m", "paceline", "serve"]
    commands = {
        "llama-server": [*theirs, *common],
        "llama-server draft": [*theirs, *common, "-md", draft, *DRAFT_FLAGS],
        "paceline": [*ours, *common, "--spec-type", "none"],
        "paceline auto": [*ours, *common, "-md", draft],
    }
    prompts = load(needed(args.prompts, "prompts")) if args.prompts else list(SUITE)
    chosen = [prompt for (prompt,) in choose(prompts, (), args.limit, 1, tail=True)]
    with ExitStack() as stack:
        programs = [stack.enter_context(started(name, words)) for name, words in commands.items()]
        for turn, prompt in enumerate(track(chosen, "answers", console=Console(stderr=True))):
            for program in rotated(programs, turn):
                until_quiet()
                program.answer(prompt, args.n)
    show(programs, [*dict.fromkeys(prompt.category for prompt in chosen), OVERALL], Path(model).name)


def show(programs: list[Program], categories: list[str], model: str) -> None:
    plain, drafted, own, auto = programs
    pairs = {"llama-server's draft": (drafted, plain), "paceline's auto": (auto, own)}
    pairs |= {"plain, ours / theirs": (own, plain), "auto / llama-server's draft": (auto, drafted)}
    table = Table("", *categories, title=f"{model}, {len(plain.texts)} answers")
    rows = {}
    for name, (one, other) in pairs.items():
        rows[name] = {c: round(one.speed(c) / other.speed(c), 3) for c in categories}
        rows[f"{name}, median"] = {c: round(median(one.ratios(other, c)), 3) for c in categories}
        table.add_row(name, *(f"{rows[name][c]:.3f}" for c in categories))
    Console(width=130).print(table)
    same = sum(a == b for a, b in zip(own.texts, auto.texts, strict=True))
    print(json.dumps({"model": model, "same_text_auto": same, "n": len(own.texts), "rows": rows}))


if __name__ == "__main__":
    guarded(main)
