"""The drafters' names, in the order in which they are asked: what is certain, then look-ups, then models."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.errors import ConfigError

NAMES = (
    "grammar",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
    "suffix",
    "draft-simple",
    "draft-eagle3",
    "draft-mtp",
    "draft-dflash",
    "draft-dspark",
)
HEADS = ("draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark")
"""Those that read the target's states."""
ALIASES = {"draft": "draft-simple", "none": "", **{name.removeprefix("draft-"): name for name in HEADS}}


def canonical(names: Iterable[str]) -> tuple[str, ...]:
    """Names as we use them, in the fixed order; unknown ones are an error."""
    wanted = {ALIASES.get(name, name) for name in names} - {""}
    unknown = wanted - set(NAMES)
    if unknown:
        raise ConfigError(f"unknown drafter {sorted(unknown)[0]!r}; choose from {', '.join(NAMES)}")
    return tuple(name for name in NAMES if name in wanted)
