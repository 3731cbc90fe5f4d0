"""What a method's name means: which drafters, with which limits, under which policy.

none            no speculation: what all others are measured against
auto            the drafters and limits of the command line, as many tokens as pay
oracle          a drafter that knows the text, as many tokens as pay: the limit of this machine
suffix          a drafter by name, taken literally; `ngram-mod+draft` are two
draft:8:0.6     with its numbers, here n_max and p_min; `draft:8` is n_max alone, with a p_min of 0
mtp:4           a head that reads the target likewise: `eagle3`, `mtp`, `dflash`, `dspark`
auto:draft:8    these drafters instead of the command line's, as many tokens as pay
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from paceline.config import Settings
from paceline.config.drafters import DrafterSettings
from paceline.drafters.names import ALIASES, HEADS, NAMES
from paceline.errors import ConfigError

NONE, AUTO, ORACLE = "none", "auto", "oracle"
LOOK_UP = ("size_n", "size_m", "min_hits")
MODELS = ("draft-simple", *HEADS)
"""Those that compute: a draft model's settings are theirs."""
NUMBERS = {
    **dict.fromkeys(MODELS, ("n_max", "p_min")),
    "ngram-simple": LOOK_UP,
    "ngram-map-k": LOOK_UP,
    "ngram-map-k4v": LOOK_UP,
    "ngram-mod": ("n_match", "n_min", "n_max"),
    "ngram-cache": ("n_max",),
    "suffix": ("n_max", "p_min"),
}
"""What the numbers after each drafter's name set, in order."""


@dataclass(frozen=True, slots=True)
class DrafterChoice:
    """One drafter, and the settings its numbers gave."""

    drafter: str
    values: tuple[tuple[str, Any], ...] = ()

    def apply(self, settings: DrafterSettings) -> DrafterSettings:
        if not self.values:
            return settings
        field = "draft_model" if self.drafter in MODELS else self.drafter.replace("-", "_")
        return replace(settings, **{field: replace(getattr(settings, field), **dict(self.values))})


@dataclass(frozen=True, slots=True)
class Method:
    """One way to run the engine. No choices under the auto policy: those of the settings it is applied to."""

    name: str
    policy: str = "fixed"
    choices: tuple[DrafterChoice, ...] = ()

    @property
    def is_fixed(self) -> bool:
        return self.policy == "fixed"

    def settings(self, base: Settings) -> Settings:
        types = tuple(choice.drafter for choice in self.choices)
        if self.name == AUTO:
            types = base.engine.spec_types
        if base.draft is None and any(name in MODELS and name != "draft-mtp" for name in types):
            raise ConfigError(f"method {self.name} needs a draft model or a head: give one with -md FILE")
        drafters = base.engine.drafters
        for choice in self.choices:
            drafters = choice.apply(drafters)
        engine = replace(base.engine, spec_types=types, spec_policy=self.policy, drafters=drafters)
        return replace(base, engine=engine)


def parse_all(names: Sequence[str]) -> tuple[Method, ...]:
    """Each once, and `none` among them: without it there is nothing to compare with."""
    wanted = dict.fromkeys(names)
    return tuple(parse(name) for name in (wanted if NONE in wanted else [NONE, *wanted]))


def parse(name: str) -> Method:
    if name == NONE:
        return Method(name)
    if name in (AUTO, ORACLE):
        return Method(name, "auto")
    listed = name.removeprefix(f"{AUTO}:")
    choices = tuple(choice(name, part) for part in listed.split("+"))
    return Method(name, "fixed" if listed == name else "auto", choices)


def choice(method: str, part: str) -> DrafterChoice:
    word, *numbers = part.split(":")
    drafter = ALIASES.get(word, word)
    if drafter not in NAMES:
        known = ", ".join((NONE, AUTO, ORACLE, "draft", *NAMES))
        raise ConfigError(f"unknown method {method!r}: {word!r} is none of {known}")
    fields = NUMBERS.get(drafter, ())
    if len(numbers) > len(fields):
        most = f"takes {', '.join(fields)} at most" if fields else "takes no numbers"
        raise ConfigError(f"method {method!r}: {word} {most}")
    values = {field: number(method, field, text) for field, text in zip(fields, numbers, strict=False)}
    if drafter in MODELS and values:
        values.setdefault("p_min", 0.0)
    return DrafterChoice(drafter, tuple(values.items()))


def number(method: str, field: str, text: str) -> float:
    try:
        return float(text) if field == "p_min" else int(text)
    except ValueError:
        raise ConfigError(f"method {method!r}: {text!r} is no {field}") from None
