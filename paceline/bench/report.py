"""What the samples say: speed-up against no speculation by category, with its spread; as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from paceline.bench.methods import AUTO, NONE, Method
from paceline.bench.run import Sample

OVERALL = "overall"
N_RESAMPLES = 2000
SPREAD = (5, 95)
COLUMNS = ("t/s", "speed-up", "90 %", "median", "predicted", "accepted", "per step", "same")
Pair = tuple[Sample, Sample]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One method against none in one category, over the jobs both have done.

    `low` to `high` holds the speed-up with 90 % confidence, by resampling the jobs; None where one job says nothing.
    `median` is that of the jobs' own speed-ups: one stall of the machine moves the total, but not it. `predicted` is
    what the planner says it gained; None where nothing plans.
    """

    category: str
    method: str
    n_jobs: int
    n_same: int
    tokens_per_second: float
    speedup: float
    low: float | None
    high: float | None
    median: float
    predicted: float | None
    acceptance: float | None
    tokens_per_step: float


@dataclass(frozen=True, slots=True)
class Hindsight:
    """The auto policy against the fixed method that turned out best, in each category and over all of them."""

    overall: float
    by_category: dict[str, tuple[str, float]]


def compare(samples: Sequence[Sample], methods: Sequence[Method]) -> list[Comparison]:
    """Category by category, then overall; within each, the methods in their order."""
    categories = [*dict.fromkeys(s.category for s in samples), OVERALL]
    wanted = [(category, method.name) for category in categories for method in methods]
    return [
        comparison(category, name, pairs) for category, name in wanted if (pairs := pairs_of(samples, name, category))
    ]


def pairs_of(samples: Sequence[Sample], method: str, category: str) -> list[Pair]:
    """A method's samples beside those of none, where both exist."""
    good = [s for s in samples if s.seconds > 0 and s.n_tokens and category in (s.category, OVERALL)]
    plain = {(s.job, s.repeat): s for s in good if s.method == NONE}
    return [(s, plain[s.job, s.repeat]) for s in good if s.method == method and (s.job, s.repeat) in plain]


def comparison(category: str, method: str, pairs: Sequence[Pair]) -> Comparison:
    own = [pair[0] for pair in pairs]
    n_drafted = sum(s.n_drafted for s in own)
    low, high = spread(pairs) if method != NONE else (None, None)
    return Comparison(
        category,
        method,
        n_jobs=len(pairs),
        n_same=sum(alike(s, plain) for s, plain in pairs),
        tokens_per_second=sum(plain.n_tokens for _, plain in pairs) / time(pairs),
        speedup=sum(plain.seconds for _, plain in pairs) / time(pairs),
        low=low,
        high=high,
        median=median(plain.seconds / time([(s, plain)]) for s, plain in pairs),
        predicted=predicted(own),
        acceptance=sum(s.n_accepted for s in own) / n_drafted if n_drafted else None,
        tokens_per_step=sum(s.n_tokens for s in own) / max(1, sum(s.n_steps for s in own)),
    )


def alike(a: Sample, b: Sample) -> bool:
    """The same texts, as far as both go: with several slots the quickest answer ends the others."""
    return all(x[: len(y)] == y[: len(x)] for x, y in zip(a.texts, b.texts, strict=True))


def time(pairs: Sequence[Pair]) -> float:
    """How long the method takes for as many tokens as none wrote of each job."""
    return sum(own.seconds * plain.n_tokens / own.n_tokens for own, plain in pairs)


def predicted(samples: Sequence[Sample]) -> float | None:
    """The planner's account of these jobs. Where nothing was drafted, nothing can have been gained or lost."""
    actual = sum(s.planned_actual for s in samples)
    plain = sum(s.planned_plain if s.n_drafted else s.planned_actual for s in samples)
    return plain / actual if actual else None


def spread(pairs: Sequence[Pair]) -> tuple[float | None, float | None]:
    """How far the speed-up would move had other jobs been drawn: a bootstrap over the pairs, always the same one."""
    if len(pairs) < 2:
        return None, None
    figures = np.array([(time([pair]), pair[1].seconds) for pair in pairs])
    drawn = np.random.default_rng(0).integers(0, len(pairs), (N_RESAMPLES, len(pairs)))
    seconds, plain_seconds = figures[drawn].sum(axis=1).T
    low, high = np.percentile(plain_seconds / seconds, SPREAD)
    return float(low), float(high)


def hindsight(samples: Sequence[Sample], methods: Sequence[Method]) -> Hindsight | None:
    """None where there is no auto, or nothing fixed but none."""
    fixed = [method.name for method in methods if method.is_fixed]
    rows = [row for row in compare(samples, methods) if row.category != OVERALL]
    auto = {row.category: row.speedup for row in rows if row.method == AUTO}
    if not auto or len(fixed) < 2:
        return None
    best = {c: max((r for r in rows if r.category == c and r.method in fixed), key=lambda r: r.speedup) for c in auto}
    chosen = [pair for c, row in best.items() for pair in pairs_of(samples, row.method, c)]
    by_category = {c: (row.method, auto[c] / row.speedup) for c, row in best.items()}
    return Hindsight(time(chosen) / time(pairs_of(samples, AUTO, OVERALL)), by_category)


# -- for people


def table(rows: Sequence[Comparison]) -> Table:
    """Tokens per second; speed-up, its spread, the jobs' median and the planner's word for it; drafted tokens accepted;
    tokens per step; texts equal to none's."""
    out = Table("category", "method", *COLUMNS, box=SIMPLE_HEAD, pad_edge=False)
    for column in out.columns[2:]:
        column.justify = "right"
    for before, row in zip([None, *rows], rows, strict=False):
        first = before is None or before.category != row.category
        if first and before:
            out.add_section()
        out.add_row(row.category if first else "", *cells(row), style="bold" if row.category == OVERALL else None)
    return out


def cells(row: Comparison) -> list[str]:
    plain = row.method == NONE
    return [
        row.method,
        f"{row.tokens_per_second:.1f}",
        "" if plain else f"{row.speedup:.3f}",
        f"{row.low:.2f}-{row.high:.2f}" if row.low is not None else "",
        "" if plain else f"{row.median:.3f}",
        f"{row.predicted:.3f}" if row.predicted is not None else "",
        f"{100 * row.acceptance:.0f} %" if row.acceptance is not None else "",
        f"{row.tokens_per_step:.2f}",
        "" if plain else f"{row.n_same}/{row.n_jobs}",
    ]


def hindsight_line(found: Hindsight) -> str:
    worst, (method, ratio) = min(found.by_category.items(), key=lambda item: item[1][1])
    return (
        f"auto runs at {found.overall:.3f} of the best fixed method chosen per category with hindsight; "
        f"at worst at {ratio:.3f} (in {worst}, where {method} is best)"
    )


# -- for programs


def summary(rows: Sequence[Comparison], found: Hindsight | None) -> dict[str, Any]:
    """By method: the overall figures, and the speed-up of every category."""
    out: dict[str, Any] = {}
    for row in rows:
        if row.category == OVERALL:
            out[row.method] = figures(row)
    for row in rows:
        if row.category != OVERALL:
            out[row.method].setdefault("categories", {})[row.category] = figures(row)
    return {"methods": out} | ({"auto_vs_best_fixed": hindsight_figures(found)} if found else {})


def figures(row: Comparison) -> dict[str, Any]:
    values = asdict(row)
    del values["category"], values["method"]
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}


def hindsight_figures(found: Hindsight) -> dict[str, Any]:
    categories = {name: {"best": best, "ratio": round(ratio, 4)} for name, (best, ratio) in found.by_category.items()}
    return {"overall": round(found.overall, 4), "categories": categories}


def all_data(head: dict[str, Any], summed: dict[str, Any], samples: Sequence[Sample]) -> dict[str, Any]:
    """What `--json FILE` holds: enough to make any report again."""
    return {**head, **summed, "samples": [asdict(s) for s in samples]}
