"""Time and memory of the look-up drafters by length of the history. Needs no model: python benchmarks/drafters.py

Each row is a request whose prompt has that many tokens (word frequencies as in text), then 300 steps in which the
history grows by 1 to 4 tokens before each draft of at most 16; taking those in is part of the call. `nothing` grows by
tokens never seen before, `copy` repeats the prompt from its middle, `text` goes on at random. Times are the best of
three medians, since the machine may be busy. Settings are the defaults but for what keeps a drafter from 16 tokens:
ngram-map-k4v looks up 8 for 16, ngram-mod takes drafts from 16, ngram-cache drafts up to 16.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence

from paceline.config.drafters import NgramCacheParams, NgramModParams, NgramParams, SuffixParams
from paceline.drafters.base import Drafter, DraftRequest
from paceline.drafters.ngram_cache import NgramCache
from paceline.drafters.ngram_map import NgramMapK, NgramMapK4V
from paceline.drafters.ngram_mod import NgramMod
from paceline.drafters.ngram_simple import NgramSimple
from paceline.drafters.suffix import Suffix

DRAFTERS: dict[str, Callable[[], Drafter]] = {
    "ngram-simple": lambda: NgramSimple(NgramParams()),
    "ngram-map-k": lambda: NgramMapK(NgramParams()),
    "ngram-map-k4v": lambda: NgramMapK4V(NgramParams(size_n=8, size_m=16)),
    "ngram-mod": lambda: NgramMod(NgramModParams(n_min=16)),
    "ngram-cache": lambda: NgramCache(NgramCacheParams(n_max=16)),
    "suffix": lambda: Suffix(SuffixParams()),
}
LENGTHS = (1_000, 10_000, 100_000)
N_VOCAB = 32_000
N_DRAFT = 16
N_STEPS = 300
Row = dict[str, str | int | float]


def text(rng: random.Random, n: int) -> list[int]:
    """Tokens whose frequency falls with their rank, as words do."""
    return [min(int(rng.paretovariate(0.6)), N_VOCAB) for _ in range(n)]


def growth(kind: str, rng: random.Random, prompt: Sequence[int]) -> Iterator[int]:
    if kind == "nothing":
        yield from range(N_VOCAB + 1, 2**31)
    elif kind == "copy":
        while True:
            yield from prompt[len(prompt) // 2 :]
    while True:
        yield from text(rng, 64)


def draft_times(drafter: Drafter, kind: str, prompt: list[int], rng: random.Random) -> tuple[list[float], list[int]]:
    """Microseconds of each call, and how much each drafted. The first 30 steps warm up."""
    history, source = list(prompt), growth(kind, rng, prompt)
    history += [next(source) for _ in range(32)]
    drafter.begin(0, list(prompt))
    times, sizes = [], []
    for _ in range(N_STEPS):
        history += [next(source) for _ in range(rng.randint(1, 4))]
        ask = [DraftRequest(seq=0, tokens=history, n_max=N_DRAFT)]
        start = time.perf_counter_ns()
        (draft,) = drafter.draft(ask)
        times.append((time.perf_counter_ns() - start) / 1e3)
        sizes.append(len(draft))
    drafter.end(0, history)
    return times[30:], sizes[30:]


def begin_ms(make: Callable[[], Drafter], prompt: list[int]) -> float:
    drafter = make()
    start = time.perf_counter_ns()
    drafter.begin(0, prompt)
    return (time.perf_counter_ns() - start) / 1e6


def memory_mib(make: Callable[[], Drafter], prompt: list[int]) -> float:
    """What the drafter and one request hold, after the steps of an ordinary text."""
    gc.collect()
    tracemalloc.start()
    drafter, history, rng = make(), list(prompt), random.Random(2)
    before_history = tracemalloc.get_traced_memory()[0]
    drafter.begin(0, history)
    for _ in range(N_STEPS):
        drafter.draft([DraftRequest(seq=0, tokens=history, n_max=N_DRAFT)])
        history.extend(text(rng, 1))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert before_history <= held
    return max(held - 8 * len(history), 0) / 2**20


def measure(name: str, n_tokens: int) -> Row:
    make, prompt = DRAFTERS[name], text(random.Random(1), n_tokens)
    row: Row = {"drafter": name, "tokens": n_tokens}
    for kind in ("nothing", "copy", "text"):
        runs = [draft_times(make(), kind, prompt, random.Random(3)) for _ in range(3)]
        row[f"{kind}_us"] = round(min(statistics.median(times) for times, _ in runs), 1)
        row[f"{kind}_p99_us"] = round(min(statistics.quantiles(times, n=100)[98] for times, _ in runs), 1)
        row[f"{kind}_drafted"] = round(statistics.fmean(runs[0][1]), 1)
    row["begin_ms"] = round(min(begin_ms(make, prompt) for _ in range(3)), 1)
    row["mib"] = round(memory_mib(make, prompt), 2)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drafters", nargs="*", default=list(DRAFTERS), help=f"some of {', '.join(DRAFTERS)}")
    rows: list[Row] = []
    for name in parser.parse_args().drafters:
        for n_tokens in LENGTHS:
            row = measure(name, n_tokens)
            if not rows:
                print(" ".join(f"{column:>15}" for column in row))
            print(" ".join(f"{value:>15}" for value in row.values()), flush=True)
            rows.append(row)
    print(json.dumps({"benchmark": "drafters", "n_draft": N_DRAFT, "rows": rows}))


if __name__ == "__main__":
    main()
