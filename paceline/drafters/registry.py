"""Drafters by name, in the order in which they are asked: look-ups first, models last."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.config import DrafterSettings
from paceline.drafters.base import Drafter
from paceline.drafters.draft_model import DraftModel
from paceline.drafters.ngram_simple import NgramSimple
from paceline.errors import ConfigError
from paceline.llama.context import Context

LOOKUPS = {
    "ngram-simple": lambda settings: NgramSimple(settings.ngram_simple),
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


def build(names: Sequence[str], settings: DrafterSettings, draft: Context | None, *, exact: bool) -> list[Drafter]:
    """The drafters of these names. `draft` is the draft model's context, if one was given."""
    return [_build_one(name, settings, draft, exact=exact) for name in canonical(names)]


def _build_one(name: str, settings: DrafterSettings, draft: Context | None, *, exact: bool) -> Drafter:
    if name in LOOKUPS:
        return LOOKUPS[name](settings)
    if draft is None:
        raise ConfigError(f"{name} needs a draft model: give one with -md")
    return DraftModel(draft, settings.draft_model, exact=exact)
