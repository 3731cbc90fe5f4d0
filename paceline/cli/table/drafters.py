"""Flags of the drafters that need no model: look-ups in the text so far."""

from __future__ import annotations

from paceline.cli.table.flag import EVERY, Flag, Kind, rows

SIZED = ("ngram_simple", "ngram_map_k", "ngram_map_k4v")


def every(field: str, *more: str) -> str:
    return " ".join([f"drafters.{name}.{field}" for name in SIZED] + list(more))


def sized(drafter: str) -> list[Flag]:
    """The three flags each of these drafters has under its own name."""
    name = drafter.replace("_", "-")
    return [
        Flag(
            names=f"--spec-{name}-size-n",
            sets=f"drafters.{drafter}.size_n",
            kind=Kind.INT,
            help=f"{name}: look for the last N tokens in the text so far; fewer find more and fail more",
        ),
        Flag(
            names=f"--spec-{name}-size-m",
            sets=f"drafters.{drafter}.size_m",
            kind=Kind.INT,
            help=f"{name}: propose up to N tokens that followed there",
        ),
        Flag(
            names=f"--spec-{name}-min-hits",
            sets=f"drafters.{drafter}.min_hits",
            kind=Kind.INT,
            help=f"{name}: how often the N tokens must have occurred before they draft",
        ),
    ]


ALL_AT_ONCE = [
    Flag(
        names="--spec-ngram-size-n",
        sets=every("size_n", "drafters.ngram_mod.n_match"),
        kind=Kind.INT,
        default="each drafter's own",
        help="for all n-gram drafters: look for the last N tokens in the text so far",
    ),
    Flag(
        names="--spec-ngram-size-m",
        sets=every("size_m"),
        kind=Kind.INT,
        default="each drafter's own",
        help="for all n-gram drafters: propose up to N tokens that followed there",
    ),
    Flag(
        names="--spec-ngram-min-hits",
        sets=every("min_hits"),
        kind=Kind.INT,
        default="each drafter's own",
        help="for all n-gram drafters: occurrences needed before they draft",
    ),
]

MOD = [
    Flag(
        names="--spec-ngram-mod-n-match",
        sets="drafters.ngram_mod.n_match",
        kind=Kind.INT,
        help="ngram-mod: look up the last N tokens in the pool all requests share",
    ),
    Flag(
        names="--spec-ngram-mod-n-min",
        sets="drafters.ngram_mod.n_min",
        kind=Kind.INT,
        help="ngram-mod: drop drafts shorter than this",
    ),
    Flag(
        names="--spec-ngram-mod-n-max",
        sets="drafters.ngram_mod.n_max",
        kind=Kind.INT,
        help="ngram-mod: the most tokens in a draft",
    ),
]

CACHE = [
    Flag(
        names="-lcs --lookup-cache-static",
        sets="drafters.ngram_cache.static_path",
        kind=Kind.PATH,
        help="ngram-cache: counts made from a corpus beforehand",
    ),
    Flag(
        names="-lcd --lookup-cache-dynamic",
        sets="drafters.ngram_cache.dynamic_path",
        kind=Kind.PATH,
        help="ngram-cache: counts learned from earlier requests, loaded at the start and saved at the end",
    ),
]

SUFFIX = [
    Flag(
        names="--spec-suffix-n-max",
        sets="drafters.suffix.n_max",
        kind=Kind.INT,
        help="suffix: the most tokens in a draft",
    ),
    Flag(
        names="--spec-suffix-p-min",
        sets="drafters.suffix.p_min",
        kind=Kind.FLOAT,
        help="suffix: a draft ends where its chance as a whole falls under this",
    ),
    Flag(
        names="--spec-suffix-n-shared",
        sets="drafters.suffix.n_shared",
        kind=Kind.INT,
        help="suffix: tokens of earlier answers kept for everybody; 0 looks at the request's own text only",
    ),
]

ROWS = rows("suffix drafter", EVERY, SUFFIX) + rows(
    "n-gram drafters", EVERY, [*ALL_AT_ONCE, *(flag for d in SIZED for flag in sized(d)), *MOD, *CACHE]
)
