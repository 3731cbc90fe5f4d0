"""Beginnings of texts, written by hand: `openings.toml` has patterns and the words that fill their gaps. A few hundred
patterns make millions of beginnings; the more varied they are, the less a draft is surprised by people."""

from __future__ import annotations

import random
import re
import tomllib
from dataclasses import dataclass
from importlib import resources

GAP = re.compile(r"\{(\w+)\}")
NUMBER = "n"


@dataclass(frozen=True, slots=True)
class Openings:
    """`openings`, `tasks` and `passages` are begun for the target to finish: in a few words, in a sentence or two, at
    length. `questions` and `follow_ups` are whole. `documents` and `systems` speak for themselves."""

    patterns: dict[str, list[str]]
    fillings: dict[str, list[str]]
    seed: int

    @classmethod
    def load(cls, seed: int) -> Openings:
        data = tomllib.loads((resources.files("paceline.distill") / "openings.toml").read_text(encoding="utf-8"))
        return cls(data["patterns"], data["fillings"], seed)

    @property
    def kinds(self) -> list[str]:
        return list(self.patterns)

    def draw(self, kind: str, n: int) -> list[str]:
        """So many different ones, if there are; the same for the same seed."""
        rng = random.Random(f"{self.seed} {kind}")
        found = dict.fromkeys(self.filled(pattern, rng) for pattern in self.patterns[kind])
        for _ in range(4 * n):
            if len(found) >= n:
                break
            found[self.filled(rng.choice(self.patterns[kind]), rng)] = None
        return list(found)

    def filled(self, pattern: str, rng: random.Random) -> str:
        def word(gap: re.Match[str]) -> str:
            if gap[1] == NUMBER:
                return str(rng.choice((rng.randint(2, 12), rng.randint(10, 99), 5 * rng.randint(3, 60))))
            return self.filled(rng.choice(self.fillings[gap[1]]), rng)

        return GAP.sub(word, pattern)
