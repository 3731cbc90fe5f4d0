"""How each drafter is made, by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paceline.drafters.base import Drafter, Resources
from paceline.drafters.dflash import DFlash
from paceline.drafters.dspark import DSpark
from paceline.drafters.eagle3 import Eagle3
from paceline.drafters.grammar import GrammarDrafter
from paceline.drafters.mtp import Mtp
from paceline.drafters.names import NAMES, canonical
from paceline.drafters.ngram_cache import NgramCache
from paceline.drafters.ngram_map import NgramMapK, NgramMapK4V
from paceline.drafters.ngram_mod import NgramMod
from paceline.drafters.ngram_simple import NgramSimple
from paceline.drafters.suffix import Suffix
from paceline.drafters.translated import draft_model

Build = Callable[[Resources], Drafter]


@dataclass(frozen=True, slots=True)
class Entry:
    """How a drafter is made, and whether it needs a model or heads to compute with."""

    build: Build
    computes: bool = False


ENTRIES: dict[str, Entry] = {
    "grammar": Entry(lambda resources: GrammarDrafter()),
    "ngram-simple": Entry(lambda resources: NgramSimple(resources.settings.ngram_simple)),
    "ngram-map-k": Entry(lambda resources: NgramMapK(resources.settings.ngram_map_k)),
    "ngram-map-k4v": Entry(lambda resources: NgramMapK4V(resources.settings.ngram_map_k4v)),
    "ngram-mod": Entry(lambda resources: NgramMod(resources.settings.ngram_mod)),
    "ngram-cache": Entry(lambda resources: NgramCache(resources.settings.ngram_cache)),
    "suffix": Entry(lambda resources: Suffix(resources.settings.suffix)),
    "draft-simple": Entry(draft_model, computes=True),
    "draft-eagle3": Entry(Eagle3, computes=True),
    "draft-mtp": Entry(Mtp, computes=True),
    "draft-dflash": Entry(DFlash, computes=True),
    "draft-dspark": Entry(DSpark, computes=True),
}
assert tuple(ENTRIES) == NAMES


def that_compute(names: Iterable[str]) -> tuple[str, ...]:
    """Those of these that need a model or heads to compute with."""
    return tuple(name for name in canonical(names) if ENTRIES[name].computes)


def build(names: Iterable[str], resources: Resources) -> list[Drafter]:
    return [ENTRIES[name].build(resources) for name in canonical(names)]
