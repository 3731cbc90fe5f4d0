"""A run's folder, which knows what everything in it was made with: a command that says otherwise is refused before it
computes anything, and what was removed is made anew."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from paceline.errors import ConfigError
from paceline.files import write_whole

Setting = str | int | None
"""None is left to us, and takes what is there; NONE says that there is none."""
Settings = dict[str, Setting]
NONE = ""
N_PROBES, PROBE = 16, 2**16


class Part(NamedTuple):
    """What a stage leaves under a name in the folder, and the flags that it depends on, beside those of the parts
    before it."""

    stage: str
    name: str
    settings: Settings


class WorkFolder:
    """`run.json` has the settings of each part; of a part that is not there they do not count."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, path / "run.json"
        self.settled: dict[str, Settings] = {}

    def settle(self, parts: Iterable[Part], stages: Iterable[str]) -> None:
        """What each part is made with. A flag of a stage that is not asked for need not be given again."""
        parts, so_far = list(parts), Settings()
        free = {flag for part in parts if part.stage not in stages for flag in part.settings}
        for place, part in enumerate(parts):
            so_far |= part.settings
            for flag, found in self.made_with(part.name).items():
                said = so_far.get(flag)
                if said is None or (said == NONE and flag in free):
                    so_far[flag] = found
                elif said != found:
                    self._refuse(flag, said, found, [later.name for later in parts[place:]])
            self.settled[part.name] = dict(so_far)

    def _refuse(self, flag: str, said: Setting, found: Setting, names: list[str]) -> None:
        there = ", ".join(name for name in names if (self.path / name).exists())
        raise ConfigError(
            f"{self.path} was made {worded(flag, found)}, not {worded(flag, said)}; "
            f"choose another --work, or remove {there} there"
        )

    def made_with(self, name: str) -> Settings:
        found: Settings = self._all().get(name, {}) if (self.path / name).exists() else {}
        return found

    def note(self, name: str, decided: Settings | None = None) -> None:
        """Before a part is made, with what was left to us and is decided now. One that is there keeps its settings."""
        if (self.path / name).exists():
            return
        asked = {flag: value for flag, value in self.settled.get(name, {}).items() if value is not None}
        known = self._all() | {name: {**(decided or {}), **asked}}
        try:
            write_whole(self.file, json.dumps(known, indent=1).encode())
        except OSError as error:
            raise ConfigError(f"cannot write to {self.path}: {error.strerror or error}") from None

    def _all(self) -> dict[str, Settings]:
        try:
            found: dict[str, Settings] = json.loads(self.file.read_bytes()) if self.file.exists() else {}
        except ValueError:
            raise ConfigError(f"{self.file} cannot be read; choose another --work, or remove {self.path}") from None
        return found


def worded(flag: str, value: Setting) -> str:
    return f"without {flag}" if value in (None, NONE) else f"with {flag} {value}"


def fingerprint(path: str) -> str:
    """A file's name and a few letters for what is in it: samples from all over it, since models are large."""
    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, 2)
            found = sha256(str(size).encode())
            for number in range(N_PROBES):
                file.seek(size * number // N_PROBES)
                found.update(file.read(PROBE))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None
    return f"{Path(path).name} ({found.hexdigest()[:8]})"
