"""What a policy is, and what it works on: budgets of slots, and a pool of drafters that it may ask."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from paceline.drafters.base import Draft
from paceline.drafters.proposal import Proposal

USUAL_ANSWER = 256  # tokens, where a request sets no lower limit

ShouldContinue = Callable[[Draft], bool]
Agreement = tuple[float, bool]  # how sure a draft model was of its token, and whether it was the target's


class Drafted(Protocol):
    """What a policy sees of a slot: all drafts made for its next step, and the one that will be checked."""

    seq: int
    draft: Proposal
    candidates: list[Draft]


@dataclass(slots=True)
class DraftBudget:
    """One slot that may draft: at most how many tokens, by whom, after how much context, and how many may follow."""

    slot: Drafted
    limit: int
    sources: Collection[str]
    n_context: int = 0
    n_min: int = 0
    n_left: int = USUAL_ANSWER


class DrafterPool(Protocol):
    """The drafting room as policies see it: one drafter is asked for several slots at once."""

    def names(self) -> list[str]:
        """Drafters that are on, in the order in which they are asked."""

    def continues(self, name: str) -> bool:
        """Whether this one is asked to go on where another's draft ends; the rest look things up."""

    def token_seconds(self, name: str, n_slots: int) -> float:
        """What each token of its drafts costs for one of so many slots, where that is known."""

    def question_seconds(self, name: str, n_slots: int) -> float:
        """What asking it costs one of so many slots at least, where that is known."""

    def ask(
        self, name: str, drafted: Sequence[Drafted], limits: Sequence[int], rules: Sequence[ShouldContinue | None]
    ) -> list[Draft]:
        """One draft for each slot, each going on after what the slot's proposal has already."""

    def clock(self) -> float:
        """The time, in seconds."""


class Policy(Protocol):
    """Whom to ask for a draft, and how much of which proposal to check."""

    def begin(self, seq: int, *, sampled: bool) -> None:
        """A request starts in this slot."""

    @property
    def rests(self) -> bool:
        """Whether nothing will be drafted in the next step, whatever the slots are."""

    def propose(self, pool: DrafterPool, budgets: Sequence[DraftBudget]) -> None:
        """Give each slot the draft that its next step will check."""

    def expects(self, pool: DrafterPool, name: str) -> bool:
        """Whether this drafter may well be asked soon."""

    def size(self, n_tokens: int) -> int:
        """How many tokens, padding included, the step's batch should have."""

    def settled(self, slot: Drafted, emitted: Sequence[int]) -> None:
        """The text went on with these tokens."""

    def observe_step(self, n_tokens: int, n_emitted: int, n_drafted: int, seconds: float) -> None:
        """A batch of generating slots was computed in this time."""

    def took_back(self, n_drafts: int, seconds: float, n_again: int) -> None:
        """In the step that is over now, being able to take back these drafts took so long, beside computing it; and so
        many tokens are to be computed again."""

    def passed(self, n_tokens: int) -> None:
        """Another batch was computed, with prompts in it."""

    def end(self, seq: int) -> None:
        """The request is over."""

    @property
    def planned_seconds(self) -> tuple[float, float] | None:
        """What all answers would have taken without speculation, and what they took, where somebody keeps account."""

    def explain(self) -> dict[str, Any]:
        """Why it does what it does, for people."""
