"""One flag: its names, its environment variables, what it sets and how its text becomes a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from paceline.cli import values
from paceline.cli.options import (
    BenchOptions,
    CommonOptions,
    DistillOptions,
    HubOptions,
    LogOptions,
    MachineOptions,
    PairOptions,
    RequestOptions,
    RunOptions,
    WorkerOptions,
)
from paceline.config import ContextParams, EngineParams, ModelParams, SamplingParams, SpeculativeParams
from paceline.config.drafters import DrafterSettings
from paceline.server.params import ServerParams

EVERY = ("run", "serve", "bench")
RUN = ("run",)
SERVE = ("serve",)
BENCH = ("bench",)
PAIR = ("pair",)
WORKER = ("worker",)
DISTILL = ("distill",)
BUT_WORKERS = (*EVERY, *DISTILL)
ALL = (*BUT_WORKERS, *WORKER)
WRITING = ("run", "serve")

DEFAULTS: dict[str, object] = {
    "model": ModelParams(path="-"),
    "draft": ModelParams(path="-"),
    "context": ContextParams(),
    "draft_context": ContextParams(),
    "engine": EngineParams(),
    "drafters": DrafterSettings(),
    "speculative": SpeculativeParams(),
    "sampling": SamplingParams(),
    "request": RequestOptions(),
    "hub": HubOptions(),
    "run": RunOptions(),
    "bench": BenchOptions(),
    "pair": PairOptions(),
    "distill": DistillOptions(),
    "server": ServerParams(),
    "common": CommonOptions(),
    "log": LogOptions(),
    "machine": MachineOptions(),
    "worker": WorkerOptions(),
}
"""The first word of a dotted path, and the dataclass it leads into."""

MISSING = object()


class Kind(Enum):
    FLAG = "flag"
    INT = "int"
    FLOAT = "float"
    STR = "str"
    PATH = "path"
    CHOICE = "choice"
    LIST = "list"


class Support(Enum):
    REAL = "real"
    IGNORED = "ignored"  # cannot act here: one line at the start says why
    REFUSED = "refused"  # would change the answer, so ignoring it would be a lie


METAVARS = {
    Kind.FLAG: "",
    Kind.INT: "N",
    Kind.FLOAT: "X",
    Kind.STR: "TEXT",
    Kind.PATH: "FILE",
    Kind.CHOICE: "",
    Kind.LIST: "A,B",
}

CONVERTERS: dict[Kind, Callable[[str], object]] = {
    Kind.FLAG: values.switch,
    Kind.INT: values.whole,
    Kind.FLOAT: values.number,
    Kind.STR: str,
    Kind.PATH: str,
    Kind.CHOICE: str,
    Kind.LIST: values.words,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One row of the table. Names, variables and paths are written as one string, separated by spaces.

    `names` are shown, `old` ones are only understood, `off` ones turn the flag off. `on` is what a bare flag
    sets. A row that `grows` adds to its tuple each time it is given. `bare` stands in for a left-out value. A `pair`
    takes two words, or one with both in it. What follows one that `quotes` is its value even if it is a flag. What a
    flag `stands_for` is set where it stands, other flags and their values: those that follow win. A row that sets
    nothing says `why`; asking for what is `always` so is fine.
    """

    names: str
    help: str
    sets: str = ""
    kind: Kind = Kind.FLAG
    old: str = ""
    off: str = ""
    env: str = ""
    metavar: str = ""
    default: str | None = None
    choices: tuple[str, ...] = ()
    convert: Callable[[str], object] | None = None
    on: object = True
    grows: bool = False
    bare: str | None = None
    pair: bool = False
    quotes: bool = False
    stands_for: tuple[tuple[str, str], ...] = ()
    refused: bool = False
    why: str = ""
    always: object = MISSING
    group: str = ""
    commands: tuple[str, ...] = ()

    @property
    def all_names(self) -> list[str]:
        return f"{self.names} {self.old} {self.off}".split()

    @property
    def fields(self) -> list[str]:
        """The dotted paths it sets."""
        return self.sets.split()

    @property
    def status(self) -> Support:
        if self.refused:
            return Support.REFUSED
        return Support.REAL if self.sets or self.stands_for else Support.IGNORED

    @property
    def takes(self) -> str:
        """What its value looks like, for help and docs."""
        return self.metavar or "|".join(self.choices) or METAVARS[self.kind]

    def value(self, text: str) -> object:
        if self.kind is Kind.CHOICE and self.choices and not self.convert and text not in self.choices:
            raise ValueError(f"{text!r} is none of {', '.join(self.choices)}")
        return (self.convert or CONVERTERS[self.kind])(text)


def default_of(path: str) -> object:
    """The default of the dataclass field a dotted path leads to, or MISSING."""
    root, *steps = path.split(".")
    found = DEFAULTS.get(root, MISSING)
    for step in steps:
        found = getattr(found, step, MISSING)
    return found


def rows(group: str, commands: tuple[str, ...], flags: Iterable[Flag]) -> tuple[Flag, ...]:
    """The flags of one group; a row may name other commands than its neighbours."""
    return tuple(replace(flag, group=group, commands=flag.commands or commands) for flag in flags)
