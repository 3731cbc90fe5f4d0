"""`paceline.toml`: flags by name, kept in a file. Knows TOML and the table of flags, nothing of what they do.

Keys before the first section hold for every command that has such a flag; `[serve]` and the like are for one.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from paceline.cli.flags import Parsed, convert, convert_switch, flags_of, spread_draft_params
from paceline.cli.table.flag import EVERY, Flag, Kind
from paceline.errors import ConfigError

NAME = "paceline.toml"


def folders() -> list[Path]:
    """Where it is looked for: the working folder, then the user's configuration."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return [Path(), (Path(base) if base else Path.home() / ".config") / "paceline"]


def with_file(given: Parsed, places: Iterable[Path]) -> Parsed:
    """What the file says, under what was given otherwise."""
    path = chosen(given.values.pop("common.config", None), places)
    if path is None:
        return given
    parsed = Parsed(given.command, file=str(path))
    read_settings(parsed, load(path), path)
    spread_draft_params(parsed)
    parsed.update(given)
    return parsed


def chosen(named: object, places: Iterable[Path]) -> Path | None:
    if named is False:
        return None
    if named is not None:
        return Path(str(named)).expanduser()
    return next((place / NAME for place in places if (place / NAME).is_file()), None)


def load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot read the configuration {path}: {reason}") from None


def read_settings(parsed: Parsed, content: Mapping[str, Any], path: Path) -> None:
    """Everything is checked, also what is meant for other commands; the section wins over what stands before it."""
    sections = {name: value for name, value in content.items() if isinstance(value, Mapping)}
    for name in sections:
        if name not in EVERY:
            raise ConfigError(
                f"{path}: unknown section [{name}]{hint(name, EVERY, '; there are [run], [serve], [bench]')}"
            )
    common = {name: value for name, value in content.items() if name not in sections}
    for key in common:
        find(key, EVERY, path)
    for command, section in sections.items():
        for key in section:
            find(key, (command,), path)
    for part in (common, sections.get(parsed.command, {})):
        read_section(parsed, part, path)


def read_section(parsed: Parsed, section: Mapping[str, Any], path: Path) -> None:
    known = flags_of(parsed.command)
    layer = Parsed(parsed.command)
    for key, value in section.items():
        name = next((name for name in spellings(key) if name in known), None)
        if name is not None:
            for each in every(known[name], value):
                layer.add(known[name], f"{path}: {key}", read_value(known[name], name, each, path))
    parsed.update(layer)


def spellings(key: str) -> tuple[str, str]:
    bare = key.lstrip("-")
    return f"--{bare.replace('_', '-')}", f"-{bare}"


def find(key: str, commands: Sequence[str], path: Path) -> None:
    """An error for a key that none of these commands has a flag for."""
    names = {name for command in commands for name in flags_of(command)}
    if names.isdisjoint(spellings(key)):
        where = f" in [{commands[0]}]" if len(commands) == 1 else ""
        raise ConfigError(f"{path}: unknown name {key!r}{where}{hint(key, [name.lstrip('-') for name in names])}")


def hint(name: str, known: Sequence[str], otherwise: str = "; names are those of docs/flags.md") -> str:
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else otherwise


def every(flag: Flag, value: object) -> list[object]:
    """A list is a flag given several times, or several words for one."""
    if not isinstance(value, list):
        return [value]
    return value if flag.grows else [",".join(map(str, value))]


def read_value(flag: Flag, name: str, value: object, path: Path) -> object:
    label = f"{path}: {name.lstrip('-')}"
    if not isinstance(value, bool | int | float | str):
        raise ConfigError(
            f"{label} is a {type(value).__name__}; give a text, a number, true or false, or a list of them"
        )
    text = ("on" if value else "off") if isinstance(value, bool) else str(value)
    if name in flag.off.split():
        return not convert_switch(label, text)
    if text != "-" and (flag.kind is Kind.PATH or flag.metavar.startswith("FILE")):
        text = str(path.parent / Path(text).expanduser())
    return convert(flag, label, text)
