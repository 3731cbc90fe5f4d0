"""Drafters by name, in the order in which they are asked: what is certain, then look-ups, then models."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline.config import DrafterSettings
from paceline.drafters.base import Drafter
from paceline.drafters.grammar import GrammarDrafter
from paceline.drafters.ngram_cache import NgramCache
from paceline.drafters.ngram_map import NgramMapK, NgramMapK4V
from paceline.drafters.ngram_mod import NgramMod
from paceline.drafters.ngram_simple import NgramSimple
from paceline.drafters.suffix import Suffix
from paceline.errors import ConfigError

LOOKUPS: dict[str, Callable[[DrafterSettings], Drafter]] = {
    "grammar": lambda settings: GrammarDrafter(),
    "ngram-simple": lambda settings: NgramSimple(settings.ngram_simple),
    "ngram-map-k": lambda settings: NgramMapK(settings.ngram_map_k),
    "ngram-map-k4v": lambda settings: NgramMapK4V(settings.ngram_map_k4v),
    "ngram-mod": lambda settings: NgramMod(settings.ngram_mod),
    "ngram-cache": lambda settings: NgramCache(settings.ngram_cache),
    "suffix": lambda settings: Suffix(settings.suffix),
}
ORDER = (*LOOKUPS, "draft-simple")
ALIASES = {"draft": "draft-simple", "none": ""}


def canonical(names: Sequence[str]) -> tuple[str, ...]:
    """Names as we use them, in the fixed order; unknown ones are an error."""
    wanted = {ALIASES.get(name, name) for name in names} - {""}
    unknown = wanted - set(ORDER)
    if unknown:
        raise ConfigError(f"unknown drafter {sorted(unknown)[0]!r}; choose from {', '.join(ORDER)}")
    return tuple(name for name in ORDER if name in wanted)


def build(names: Sequence[str], settings: DrafterSettings, draft_model: Drafter | None) -> list[Drafter]:
    """The drafters of these names; the draft model's, which needs a context, is made by the caller."""
    return [_build_one(name, settings, draft_model) for name in canonical(names)]


def _build_one(name: str, settings: DrafterSettings, draft_model: Drafter | None) -> Drafter:
    if name in LOOKUPS:
        return LOOKUPS[name](settings)
    if draft_model is None:
        raise ConfigError(f"{name} needs a draft model: give one with -md")
    return draft_model
