"""Prompts as people write them: `people.jsonl`, written for this project, and ways to wrap its texts. A draft that has
only seen what the target asks itself is surprised by people; what they ask brings other words into the answers too.
"""

from __future__ import annotations

import json
import random
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

ENGLISH = "English"
SHARES = {"question": 0.16, "maths": 0.14, "translate": 0.12, "summarize": 0.2, "ask": 0.19, "chat": 0.19}
"""How often each kind of conversation is drawn."""
HELD_OUT_EVERY = 20
PASSAGES = ((1, 0.55), (2, 0.25), (3, 0.2))
"""How many texts a question comes with: as from a search, only one of them has the answer."""


@dataclass(frozen=True, slots=True)
class People:
    """`entries` by kind: one message or two that follow each other, a text with questions about it, or a sentence."""

    entries: dict[str, list[dict[str, Any]]]
    wrappings: dict[str, list[str]]
    seed: int

    @classmethod
    def load(cls, seed: int, *, held_out: bool = False) -> People:
        """All but a few; or those few, for measuring."""
        folder = resources.files("paceline.distill")
        entries: dict[str, list[dict[str, Any]]] = {}
        for line in (folder / "people.jsonl").read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            entries.setdefault(entry["kind"], []).append(entry)
        entries = {
            kind: [entry for number, entry in enumerate(some) if (number % HELD_OUT_EVERY == 0) == held_out]
            for kind, some in entries.items()
        }
        return cls(entries, tomllib.loads((folder / "people.toml").read_text(encoding="utf-8")), seed)

    def draw(self, n: int) -> list[list[str]]:
        """So many conversations, each the messages of one person; the same for the same seed."""
        rng = random.Random(f"{self.seed} people")
        kinds = rng.choices([*SHARES], [*SHARES.values()], k=n)
        return [getattr(self, kind)(rng) for kind in kinds]

    def question(self, rng: random.Random) -> list[str]:
        return [rng.choice(self.entries["question"])["text"]]

    def maths(self, rng: random.Random) -> list[str]:
        return [rng.choice(self.entries["maths"])["text"]]

    def chat(self, rng: random.Random) -> list[str]:
        turns: list[str] = rng.choice(self.entries["chat"])["turns"]
        return turns

    def translate(self, rng: random.Random) -> list[str]:
        entry = rng.choice(self.entries["sentence"])
        if entry["language"] == ENGLISH:
            return [self._wrapped("translate_from_english", rng, entry["text"], rng.choice(self.wrappings["tongues"]))]
        return [self._wrapped("translate", rng, entry["text"], entry["language"])]

    def summarize(self, rng: random.Random) -> list[str]:
        return [self._wrapped("summarize", rng, rng.choice(self.entries["text"])["text"])]

    def ask(self, rng: random.Random) -> list[str]:
        """A question about a text, among others; then perhaps another one."""
        n = rng.choices([n for n, _ in PASSAGES], [share for _, share in PASSAGES])[0]
        found = rng.sample(self.entries["text"], n)
        first, *more = rng.sample(found[0]["questions"], 2)
        rng.shuffle(found)
        text = "\n\n".join(entry["text"] for entry in found)
        return [self._wrapped("ask", rng, text, question=first), *more]

    def _wrapped(self, how: str, rng: random.Random, text: str, tongue: str = "", question: str = "") -> str:
        return rng.choice(self.wrappings[how]).format(text=text, tongue=tongue, question=question)
