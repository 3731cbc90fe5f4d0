"""Flags of `paceline pair`, and those of other commands that it takes too."""

from __future__ import annotations

from dataclasses import replace

from paceline.cli.table.flag import EVERY, PAIR, Flag, Kind, rows

SHARED = ("model.", "draft.", "hub.", "context.", "draft_context.", "drafters.draft_model.", "machine.", "log.")
"""What decides how models are loaded and computed; pairs are measured with one slot, and never exactly."""
UNHEARD = ("context.n_ctx", "context.n_batch", "context.kv_unified", "context.n_ctx_slot")
"""Of no account in short texts."""

OWN = [
    Flag(
        names="--seconds",
        sets="pair.seconds",
        kind=Kind.FLOAT,
        help="how long the target writes, and how long each candidate is measured after that; less where the texts are "
        "done sooner",
    ),
    Flag(
        names="--json",
        sets="pair.json",
        help="print one JSON object with every figure instead of the table",
    ),
]

ROWS = rows("pairing", PAIR, OWN)


def shared(*flags: Flag) -> tuple[Flag, ...]:
    """The same flags; those that concern `pair` say so."""
    return tuple(replace(flag, commands=(*flag.commands, *PAIR)) if is_shared(flag) else flag for flag in flags)


def is_shared(flag: Flag) -> bool:
    of_all = set(EVERY) <= set(flag.commands)
    return of_all and all(path.startswith((*SHARED, "common.")) and path not in UNHEARD for path in flag.fields)
