"""What HTTP costs: one answer at a time from `paceline serve`, streamed, and from the library in this process.

    python -m benchmarks.front [--kind Q4_1] [--rounds 12] [-n 96] [--slots 4] [--spec-type none]

Both sides have the same settings and take turns, A B B A, each on a quiet machine. Every turn
has another prompt: a text seen before would be drafted from memory. Nothing drafts unless asked to, since two planners
with clocks of their own would add noise. Speed counts from the first token to the last. The machine has to be idle:
beside other work threads that wait for each other at every step are slower by ten times.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.common import prompts, show, until_quiet
from benchmarks.load import messages
from benchmarks.server import Server, serving
from paceline import Engine
from paceline.models import demo_copy

N_CTX = 16384
N_CHARS = 160
BUFFER = 2**16
GOALS = {"load_average_before": "<= 0.5", "speed_ratio": ">= 0.97", "first_token_difference_ms": "<= 5"}


@dataclass(frozen=True, slots=True)
class Timed:
    """One answer: seconds to its first token and to its last."""

    first: float
    last: float
    n_tokens: int

    @property
    def speed(self) -> float:
        return (self.n_tokens - 1) / (self.last - self.first)


Side = Callable[[str, int], Timed]


def over_http(server: Server, n: int) -> Side:
    """Reads what comes and looks at it afterwards: a client that computes would take its time from the server's."""

    def answer(text: str, seed: int) -> Timed:
        body = {"messages": messages(text), "max_tokens": n, "temperature": 0.8, "seed": seed, "ignore_eos": True}
        data = json.dumps({**body, "stream": True}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {server.host}\r\nContent-Length: {len(data)}\r\n\r\n"
        start, come = perf_counter(), list[tuple[float, bytes]]()
        with socket.create_connection((server.host, server.port)) as sock:
            sock.sendall(head.encode() + data)
            while got := sock.recv(BUFFER):
                come.append((perf_counter() - start, got))
                if b"[DONE]" in b"".join([got for _, got in come[-2:]]):
                    break
        whole = b"".join(got for _, got in come)
        assert whole.startswith(b"HTTP/1.1 200"), whole[:200]
        n_tokens = int(re.findall(rb'"predicted_n":(\d+)', whole)[-1])
        text_at = [when for when, got in come if b'"content":"' in got]
        return Timed(text_at[0], text_at[-1], n_tokens)

    return answer


def in_library(engine: Engine, n: int) -> Side:
    template = engine.chat_template  # compiled once, as the server does

    def answer(text: str, seed: int) -> Timed:
        start = perf_counter()
        prompt = engine.tokenize(template.render(messages(text)))
        chunks = engine.generate(prompt, max_tokens=n, temperature=0.8, seed=seed, ignore_eos=True)
        steps = [(perf_counter() - start, len(chunk.pieces)) for chunk in chunks]
        return Timed(steps[0][0], steps[-1][0], sum(n for _, n in steps))

    return answer


def turns(http: Side, library: Side, rounds: int) -> list[tuple[Timed, Timed]]:
    """Pairs of answers, HTTP's first in each pair; who goes first alternates. The first two rounds warm up."""
    pairs = []
    texts = [prompt.text[:N_CHARS] for prompt in prompts(rounds + 2)]
    for turn, text in enumerate(texts):
        order = [http, library] if turn % 2 else [library, http]
        found = {}
        for side in order:
            until_quiet()
            found[side] = side(text, turn)
        pairs.append((found[http], found[library]))
    return pairs[2:]


def figures(pairs: list[tuple[Timed, Timed]]) -> dict[str, Any]:
    served, own = zip(*pairs, strict=True)
    totals = [sum(t.n_tokens for t in side) / sum(t.last for t in side) for side in (served, own)]
    ratios = [a.speed / b.speed for a, b in pairs]
    return {
        "answers": len(pairs),
        "speed_ratio": round(median(ratios), 4),
        "speed_ratio_lowest": round(min(ratios), 4),
        "speed_ratio_highest": round(max(ratios), 4),
        "total_ratio": round(totals[0] / totals[1], 4),
        "http_tokens_per_second": round(median(t.speed for t in served), 2),
        "library_tokens_per_second": round(median(t.speed for t in own), 2),
        "http_first_token_ms": round(1e3 * median(t.first for t in served), 2),
        "library_first_token_ms": round(1e3 * median(t.first for t in own), 2),
        "first_token_difference_ms": round(1e3 * median(a.first - b.first for a, b in pairs), 2),
    }


def measure(model: str, args: argparse.Namespace) -> dict[str, Any]:
    types = [name for name in args.spec_type.split(",") if name != "none"]
    flags = ["-t", str(args.threads), "--spec-type", args.spec_type]
    with (
        serving(model, args.slots, N_CTX, ["-kvu", *flags]) as server,
        Engine(model, n_ctx=N_CTX, n_slots=args.slots, n_threads=args.threads, spec_types=types) as engine,
    ):
        return figures(turns(over_http(server, args.n), in_library(engine, args.n), args.rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", default="Q4_1", help="precision of the demo model")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--spec-type", default="none")
    parser.add_argument("-n", type=int, default=96)
    args = parser.parse_args()
    if "OMP_WAIT_POLICY" in os.environ:
        parser.error("unset OMP_WAIT_POLICY: it changes how long libllama's threads take to wake up")
    model, _ = demo_copy(args.kind)
    busy = os.getloadavg()[0]
    result = {"load_average_before": round(busy, 2), **measure(model, args)}
    show(result, GOALS)


if __name__ == "__main__":
    main()
