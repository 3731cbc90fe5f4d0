"""Who is asked for a draft, and which proposal is checked: what a policy is, and the one that follows the flags."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from paceline.drafters.base import Draft
from paceline.drafters.grammar import GrammarDrafter
from paceline.engine.slot import Slot

MODELS = frozenset({"draft-simple"})
SHORT = 4  # a look-up draft of fewer tokens is worth continuing with a model
GoOn = Callable[[Draft], bool]


class Asks(Protocol):
    """What a policy needs of the drafting room: asking one drafter for several slots."""

    def names(self) -> list[str]: ...
    def ask(self, name: str, slots: list[Slot], limits: list[int], go_on: Sequence[GoOn | None]) -> list[Draft]: ...
    def seconds(self, name: str) -> float: ...


@dataclass(slots=True)
class Want:
    """One slot that may draft, and at most how much."""

    slot: Slot
    limit: int


class FixedPolicy:
    """Takes the flags literally, as llama-server does: the first non-empty draft wins, in the registry's order.

    What a grammar forces is continued by anybody, a short look-up by a model.
    """

    def propose(self, asks: Asks, wants: list[Want]) -> None:
        for name in asks.names():
            asked = [want for want in wants if self._wanted(want, name)]
            if not asked:
                continue
            limits = [want.limit - len(want.slot.draft) for want in asked]
            drafts = asks.ask(name, [want.slot for want in asked], limits, [None] * len(asked))
            for want, draft in zip(asked, drafts, strict=True):
                want.slot.draft.add(draft)
        for want in wants:
            n_min = want.slot.wishes.n_min or 0
            want.slot.draft.cut(want.limit if len(want.slot.draft) >= n_min else 0)

    @staticmethod
    def _wanted(want: Want, name: str) -> bool:
        n = len(want.slot.draft)
        if name not in want.slot.stats or n >= want.limit:
            return False
        if name in MODELS and n < SHORT:
            return True
        return all(part.source == GrammarDrafter.name for part in want.slot.draft.parts)

    def settled(self, slot: Slot, emitted: Sequence[int]) -> None:
        """Nothing to learn."""

    def ended(self, slot: Slot) -> None:
        """Nothing to forget."""

    def spent(self, n_tokens: int, n_emitted: int, seconds: float) -> None:
        """Nothing to measure."""
