"""Written text on disk: one file a round, each whole or not there, so that a run can be interrupted at any time."""

from __future__ import annotations

import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from paceline.errors import ConfigError
from paceline.files import write_whole

HELD_OUT = "held-out"


class Rows(NamedTuple):
    """Tokens and who wrote each [rows, tokens]."""

    tokens: npt.NDArray[np.int32]
    kinds: npt.NDArray[np.uint8]


class TextFolder:
    """Rounds by number, and one that is never trained on."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, name: str, rows: Rows, seconds: float = 0.0) -> None:
        small = rows.tokens.astype(np.uint16) if rows.tokens.max(initial=0) < 2**16 else rows.tokens
        data = io.BytesIO()
        np.savez(data, tokens=small, kinds=rows.kinds, seconds=seconds)
        try:
            write_whole(self.path / f"{name}.npz", data.getvalue())
        except OSError as error:
            raise ConfigError(f"cannot write text to {self.path}: {error.strerror or error}") from None

    def load(self, name: str) -> Rows:
        with np.load(self.path / f"{name}.npz") as found:
            return Rows(found["tokens"].astype(np.int32), found["kinds"])

    def size(self, name: str) -> tuple[int, float]:
        """How many tokens, and how long they took."""
        with np.load(self.path / f"{name}.npz") as found:
            return int(found["kinds"].size), float(found["seconds"])

    def has(self, name: str) -> bool:
        return (self.path / f"{name}.npz").exists()

    @property
    def rounds(self) -> list[str]:
        """Names of what is trained on, in order."""
        return sorted(file.stem for file in self.path.glob("[0-9]*.npz"))

    def all(self) -> Rows:
        """Everything but what is held out."""
        if not self.rounds:
            raise ConfigError(f"there is no text in {self.path} yet; `--stage write` makes it")
        parts = [self.load(name) for name in self.rounds]
        return Rows(np.concatenate([p.tokens for p in parts]), np.concatenate([p.kinds for p in parts]))
