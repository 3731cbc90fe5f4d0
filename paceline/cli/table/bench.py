"""Flags of `paceline bench`: what is compared, on which prompts, how long."""

from __future__ import annotations

from paceline.cli import values
from paceline.cli.table.flag import BENCH, Flag, Kind, rows

COMPARE = [
    Flag(
        names="--methods",
        sets="bench.methods",
        kind=Kind.LIST,
        default="none,auto",
        help="what to compare: none, auto (what you get by default), oracle (knows the text: this machine's limit), or "
        "drafters under --spec-policy fixed, as in suffix, ngram-mod+draft, draft:8:0.6 or mtp:4 (n_max, p_min), "
        "ngram-simple:4:8 (n, m); auto:draft:8 lets the planner choose within that",
    ),
    Flag(
        names="--prompts",
        sets="bench.prompts",
        kind=Kind.PATH,
        default="our own suite",
        help="a file in Spec-Bench's format: one JSON object a line with category and turns",
    ),
    Flag(
        names="--categories",
        sets="bench.categories",
        kind=Kind.LIST,
        default="all",
        help="only prompts of these categories",
    ),
    Flag(names="--limit", sets="bench.limit", kind=Kind.INT, help="prompts of each category; 0 = all"),
    Flag(
        names="--tail",
        sets="bench.tail",
        help="take the prompts from the end of each category instead of its beginning: judge settings by others than "
        "those they were chosen on",
    ),
    Flag(
        names="-n --predict",
        old="--n-predict",
        sets="bench.n_tokens",
        kind=Kind.INT,
        help="tokens to write for each prompt, always all of them",
    ),
    Flag(
        names="--temp --temperature",
        sets="sampling.temperature",
        kind=Kind.FLOAT,
        default="0",
        help="how daring the draw is: 0 always takes the likeliest token",
    ),
    Flag(
        names="-s --seed",
        sets="sampling.seed",
        kind=Kind.INT,
        convert=values.seed,
        default="1",
        help="with --temp: every method draws with the same seed, every prompt with another",
    ),
    Flag(
        names="--repeat",
        sets="bench.repeat",
        kind=Kind.INT,
        help="do it all so many times, with fresh engines that remember nothing",
    ),
    Flag(
        names="--quick",
        sets="bench.quick",
        help="a first look in about 40 seconds: fewer and shorter answers, ended when the time is up",
    ),
    Flag(
        names="--json",
        sets="bench.json",
        kind=Kind.PATH,
        help="write every measurement to this file; the last line printed is a summary as JSON in any case",
    ),
]

ROWS = rows("comparison", BENCH, COMPARE)
