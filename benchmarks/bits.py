"""Exact mode on this very device: the same tokens whatever drafts, greedy and sampled, alone and beside others?

The part `exact` of benchmarks.gpu.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from paceline.bench.jobs import chat
from paceline.bench.suite import SuitePrompt
from paceline.config import Settings
from paceline.errors import PacelineError
from paceline.library import Engine
from paceline.llama.shared import SharedModels

N_TEXTS = 20
MAX_PROMPT = 256
N_MOST = 64
N_SLOTS = (1, 4)
SAMPLINGS: dict[str, dict[str, Any]] = {"greedy": {"temperature": 0.0}, "sampled": {"temperature": 0.8, "seed": 1}}
DRAFTERS = {"none": (), "auto": ("suffix", "draft-simple"), "draft": ("draft-simple",), "suffix": ("suffix",)}
Texts = dict[tuple[str, int], list[int]]  # by sampling and number


@dataclass(frozen=True, slots=True)
class Row:
    """One drafter's texts beside those of none. `first` is the earliest token at which one differs."""

    drafter: str
    n_slots: int
    same: int = 0
    of: int = 0
    first: int | None = None
    n_drafted: int = 0
    n_accepted: int = 0
    error: str = ""


def measure(
    base: Settings, prompts: Sequence[SuitePrompt], n_tokens: int, models: SharedModels, seconds: float
) -> list[Row]:
    """None with one slot first, then all others while there is time."""
    until = perf_counter() + seconds
    able = [name for name in DRAFTERS if name in ("none", "suffix") or base.draft]
    texts = spaced(prompts, N_TEXTS)
    expected, plain = written(settings(base, "none", 1), texts, min(n_tokens, N_MOST), models)
    rows = [judged(Row("none", 1, n_drafted=plain[0], n_accepted=plain[1]), expected, expected)]
    for name, n_slots in [(name, n_slots) for name in able for n_slots in N_SLOTS][1:]:
        if perf_counter() > until:
            break
        rows.append(row(base, name, n_slots, texts, min(n_tokens, N_MOST), models, expected))
    return rows


def row(
    base: Settings, name: str, n_slots: int, texts: list[str], n: int, models: SharedModels, expected: Texts
) -> Row:
    try:
        found, (n_drafted, n_accepted) = written(settings(base, name, n_slots), texts, n, models)
    except PacelineError as error:
        return Row(name, n_slots, error=str(error))
    return judged(Row(name, n_slots, n_drafted=n_drafted, n_accepted=n_accepted), found, expected)


def judged(row: Row, found: Texts, expected: Texts) -> Row:
    places = [parting(found[key], text) for key, text in expected.items()]
    parted = [place for place in places if place is not None]
    return replace(row, same=len(places) - len(parted), of=len(places), first=min(parted, default=None))


def parting(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Where two texts part, None where they are the same."""
    if a == b:
        return None
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def spaced(prompts: Sequence[SuitePrompt], n: int) -> list[str]:
    """n prompts spread over the whole file, so over its categories."""
    return [prompts[i * len(prompts) // n].text for i in range(min(n, len(prompts)))]


def settings(base: Settings, name: str, n_slots: int) -> Settings:
    policy = "auto" if name == "auto" else "fixed"
    engine = replace(base.engine, n_slots=n_slots, exact=True, spec_types=DRAFTERS[name], spec_policy=policy)
    room = n_slots * 2 * (MAX_PROMPT + N_MOST)
    return replace(base, engine=engine, context=replace(base.context, n_ctx=room))


def written(settings: Settings, texts: list[str], n: int, models: SharedModels) -> tuple[Texts, tuple[int, int]]:
    """All texts, as many at once as there are slots, and how many tokens were drafted and accepted."""
    with Engine.from_settings(settings, models=models) as engine:
        running = {
            (sampling, i): engine.generate(chat(engine, text)[:MAX_PROMPT], max_tokens=n, **values)
            for sampling, values in SAMPLINGS.items()
            for i, text in enumerate(texts)
        }
        found = {key: [p.token.id for chunk in each for p in chunk.pieces] for key, each in running.items()}
    timings = [each.finish.timings for each in running.values() if each.finish]
    return found, (sum(t.draft_n for t in timings), sum(t.draft_n_accepted for t in timings))


def table(rows: Sequence[Row]) -> Table:
    out = Table("exact", "slots", "same", "first difference", "drafted", "accepted", box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        first = "" if row.first is None else str(row.first)
        share = f"{100 * row.n_accepted / row.n_drafted:.0f} %" if row.n_drafted else ""
        same = row.error or f"{row.same}/{row.of}"
        out.add_row(row.drafter, str(row.n_slots), same, first, str(row.n_drafted), share)
    return out


if __name__ == "__main__":
    raise SystemExit("bits: run it with python -m benchmarks.gpu -m model.gguf --parts exact")
