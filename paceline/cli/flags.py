"""The command line and LLAMA_ARG_* variables, read by the one table in `cli/table`.

Knows names and values, nothing of what they do. Values are kept by dotted path ("context.n_ctx"); `build.py`
turns them into the dataclasses of `config`. `python -m paceline.cli.flags` prints docs/flags.md.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import Any

from paceline.cli import values
from paceline.cli.table import TABLE
from paceline.cli.table.flag import Flag, Kind, Support
from paceline.errors import ConfigError

NO_VARIABLES: Mapping[str, str] = {}

ATTACHED = re.compile(r"(-[a-zA-Z]+)(-?[0-9].*)")

TAKES_WORDS = ("pair",)
"""Commands that are told what they are about without a flag."""

FOR_THE_DRAFT = {
    "context.n_ctx": "drafters.draft_model.window",
    "context.n_batch": "drafters.draft_model.n_batch",
    "context": "draft_context",
    "machine.cores": "draft_context.cores",
    "machine.strict": "draft_context.strict",
    "model": "draft",
    "hub.model": "hub.draft",
    "drafters": "drafters",
}
"""Where the target's settings go when they stand in `--draft-params`."""


@dataclass(slots=True)
class Parsed:
    """What the user asked for: only what was given, by dotted path. `file` is the configuration that was read too,
    `words` are what stands beside the flags, and `typed` the flags as they were written, each with what it sets."""

    command: str
    values: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    file: str | None = None
    words: list[str] = field(default_factory=list)
    typed: list[tuple[str, list[str]]] = field(default_factory=list)

    def under(self, root: str) -> dict[str, Any]:
        """The values below one root, by the rest of their path."""
        return {path.removeprefix(f"{root}."): v for path, v in self.values.items() if path.startswith(f"{root}.")}

    def update(self, other: Parsed) -> None:
        """What the other says wins."""
        self.values.update(other.values)
        self.words += other.words
        self.typed += other.typed
        for warning in other.warnings:
            self.warn(warning)

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def add(self, flag: Flag, name: str, value: object) -> None:
        """One use of a flag; `name` is what the user typed, for messages."""
        if value == flag.always:
            return
        if flag.status is Support.REFUSED:
            raise ConfigError(f"{name} is not supported: {flag.why}")
        if flag.status is Support.IGNORED:
            self.warn(f"{name} has no effect here: {flag.why}")
        for other, text in flag.stands_for if value else ():
            self.stand_in(other, text)
        for path in flag.fields:
            before = self.values.get(path) if flag.grows else None
            self.values[path] = before + value if isinstance(before, tuple) and isinstance(value, tuple) else value

    def stand_in(self, name: str, text: str) -> None:
        """One of the flags that a preset stands for, where the command has it."""
        flag = flags_of(self.command).get(name)
        if flag is not None:
            self.add(flag, name, convert(flag, name, text))


@cache
def flags_of(command: str) -> dict[str, Flag]:
    """Every name a command understands."""
    return {name: flag for flag in TABLE if command in flag.commands for name in flag.all_names}


def parse(argv: Sequence[str], command: str, environ: Mapping[str, str] = NO_VARIABLES) -> Parsed:
    """Read the variables, then the command line, which wins."""
    parsed = Parsed(command)
    given = Parsed(command)
    read_variables(parsed, environ)
    read_arguments(given, argv)
    parsed.update(given)
    spread_draft_params(parsed)
    return parsed


def read_variables(parsed: Parsed, environ: Mapping[str, str]) -> None:
    for flag in dict.fromkeys(flags_of(parsed.command).values()):
        for name in flag.env.split():
            if name in environ:
                parsed.add(flag, name, convert(flag, name, environ[name]))
            negative = name.replace("LLAMA_ARG_", "LLAMA_ARG_NO_")
            if flag.off and negative != name and negative in environ:
                parsed.add(flag, negative, False)


def read_arguments(parsed: Parsed, argv: Sequence[str]) -> None:
    """The value of a flag is the next word, whatever it looks like, unless that word is itself a flag's name."""
    known = flags_of(parsed.command)
    words = iter(enumerate(argv))
    for index, word in words:
        name, text = split(word, known)
        flag, last = known.get(name), index
        if flag is None and parsed.command in TAKES_WORDS and not word.startswith("-"):
            parsed.words.append(word)
            continue
        if flag is None:
            raise ConfigError(stranger(name, parsed.command))
        if text is None and takes_value(flag, name):
            text = following(argv, index, flag, known)
            if text is None and flag.bare is None:
                raise ConfigError(missing(name, argv[index + 1 : index + 2]))
            if text is not None:
                last, _ = next(words)
        if flag.pair and text is not None and (other := second(argv, last, text, flag, known)) is not None:
            last, _ = next(words)
            text = f"{text}{values.BETWEEN}{other}"
        parsed.add(flag, name, value_of(flag, name, text))
        parsed.typed.append((flag.sets, list(argv[index : last + 1])))


def split(word: str, known: Mapping[str, Flag]) -> tuple[str, str | None]:
    """`--flag=value` and `-ngl99` carry their value along. Long names may be written with underscores."""
    if word in known:
        return word, None
    name, equals, text = word.partition("=")
    if name.startswith("--"):
        name = name.replace("_", "-")
    if equals and name.startswith("-"):
        return name, text
    attached = ATTACHED.fullmatch(word)
    if attached and attached[1] in known and known[attached[1]].kind in (Kind.INT, Kind.FLOAT):
        return attached[1], attached[2]
    return name, None


def takes_value(flag: Flag, name: str) -> bool:
    return flag.kind is not Kind.FLAG and name not in flag.off.split()


def following(argv: Sequence[str], index: int, flag: Flag, known: Mapping[str, Flag]) -> str | None:
    """The next word, if it can be this flag's value."""
    if index + 1 == len(argv) or (argv[index + 1] in known and not flag.quotes):
        return None
    word = argv[index + 1]
    if flag.bare is None:
        return word
    try:
        flag.value(word)
    except ValueError:
        return None
    return word


def second(argv: Sequence[str], index: int, first: str, flag: Flag, known: Mapping[str, Flag]) -> str | None:
    """The other word of a pair. Where the first may be both, what looks like a flag is none of it."""
    word = following(argv, index, flag, known)
    return None if word and word.startswith("-") and " " in first else word


def value_of(flag: Flag, name: str, text: str | None) -> object:
    if name in flag.off.split():
        return not convert_switch(name, text)
    if text is not None:
        return convert(flag, name, text)
    return flag.on if flag.kind is Kind.FLAG else convert(flag, name, flag.bare or "")


def convert_switch(name: str, text: str | None) -> bool:
    try:
        return text is None or values.switch(text)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None


def convert(flag: Flag, name: str, text: str) -> object:
    try:
        value = flag.value(text)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
    if flag.kind is not Kind.FLAG or isinstance(flag.on, bool):
        return value
    return flag.on if value else ()


def missing(name: str, following: Sequence[str]) -> str:
    if not following:
        return f"{name} needs a value"
    word = following[0]
    return f"{name} needs a value, but the flag {word} follows; write {name}={word} if you mean that text"


def stranger(name: str, command: str) -> str:
    """What to say to a word that is no flag of this command."""
    if not name.startswith("-"):
        return f"unexpected {name!r}: every value follows a flag; prompts go after -p"
    others = sorted({other for flag in TABLE if name in flag.all_names for other in flag.commands})
    if others:
        return f"{name} is a flag of `paceline {others[0]}`, not of `paceline {command}`"
    near = get_close_matches(name, flags_of(command), n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else f"; see `paceline {command} --help`"
    return f"unknown flag {name}{hint}"


def spread_draft_params(parsed: Parsed) -> None:
    """`--draft-params "-ngl 99 -ctk q8_0"`: the target's flags, meant for the draft. Direct flags win."""
    text = parsed.values.pop("common.draft_params", None)
    if text is None:
        return
    try:
        inner = parse(shlex.split(str(text)), parsed.command)
    except ValueError as error:
        raise ConfigError(f"--draft-params: {error}") from None
    for warning in inner.warnings:
        parsed.warn(warning)
    for path, value in inner.values.items():
        target = draft_path(path)
        if target is None:
            parsed.warn(f"--draft-params: {name_of(path, parsed.command)} does not concern a draft model")
        else:
            parsed.values.setdefault(target, value)


def name_of(path: str, command: str) -> str:
    """The flag that sets it."""
    return next(name for name, flag in flags_of(command).items() if path in flag.fields)


def draft_path(path: str) -> str | None:
    if path in FOR_THE_DRAFT:
        return FOR_THE_DRAFT[path]
    root, _, rest = path.partition(".")
    return f"{FOR_THE_DRAFT[root]}.{rest}" if root in FOR_THE_DRAFT else None


if __name__ == "__main__":
    from paceline.cli.help import markdown

    print(markdown(), end="")
