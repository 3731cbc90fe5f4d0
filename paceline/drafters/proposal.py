"""What a slot's next step will check: drafts of one or several drafters, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from paceline.drafters.base import Draft


@dataclass(slots=True)
class Proposal:
    """Each part goes on where the one before ends."""

    parts: list[Draft] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, draft: Draft) -> None:
        if draft.tokens:
            self.parts.append(draft)
            self.tokens += draft.tokens

    def cut(self, n: int) -> None:
        """Keep the first n tokens."""
        while len(self.tokens) > n:
            last = self.parts.pop()
            n_before = len(self.tokens) - len(last)
            del self.tokens[n_before:]
            self.add(last.cut(max(0, n - n_before)))

    def sources(self) -> list[str]:
        """Who guessed each token."""
        return [part.source for part in self.parts for _ in part.tokens]

    def outcome(self, n_accepted: int) -> Iterator[tuple[Draft, int, bool]]:
        """For each part how many of its tokens were right, and whether the text got as far as its first."""
        for part in self.parts:
            yield part, min(max(n_accepted, 0), len(part)), n_accepted >= 0
            n_accepted = n_accepted - len(part) if n_accepted >= len(part) else -1
