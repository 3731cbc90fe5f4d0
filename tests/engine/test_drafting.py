"""Asking drafters: what they say is cut where the text would end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from paceline.drafters.base import Draft, Drafter, DraftRequest
from paceline.drafters.grammar import GrammarDrafter
from paceline.drafters.proposal import Proposal
from paceline.engine.drafting import Drafting
from paceline.engine.slot import Slot
from paceline.engine.stats import DrafterStats
from paceline.errors import RequestError
from paceline.planner.fixed import FixedPolicy
from tests.fakes import EOG, Client, Prophet


class Beyond(Prophet):
    """Does not know when to stop."""

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [Draft([1, EOG, 2], self.name, [0.9] * 3) for _ in requests]


def test_nothing_is_drafted_after_the_end_of_a_text() -> None:
    drafting = Drafting([Beyond(1.0)], FixedPolicy(), frozenset({EOG}))
    client = Client([3])
    slot = Slot(0, tokens=[3], active=client.active, stats={"prophet": DrafterStats("prophet")}, draft=Proposal())
    slot.sampler = type("Seeded", (), {"seed": 0})()
    drafting.propose([slot], [8])
    assert slot.draft.tokens == [1, EOG]


class Waiting(Beyond):
    """Goes on with one text only."""

    def is_ready(self, seq: int, tokens: Sequence[int]) -> bool:
        return seq == 1


def test_who_lacks_what_it_needs_to_go_on_with_a_text_is_not_asked_about_it() -> None:
    drafting = Drafting([Waiting(1.0)], FixedPolicy(), frozenset({EOG}))
    slots = []
    for seq in (0, 1):
        stats = {"prophet": DrafterStats("prophet")}
        slots.append(Slot(seq, tokens=[3], active=Client([3]).active, stats=stats, draft=Proposal()))
        slots[-1].sampler = type("Seeded", (), {"seed": 0})()
    drafting.propose(slots, [8, 8])
    assert [slot.draft.tokens for slot in slots] == [[], [1, EOG]]
    assert drafting.stats["prophet"].n_calls == 1


class Failing:
    """A grammar that breaks whatever it is asked."""

    def forced(self) -> list[int]:
        raise RequestError("the grammar fails")

    def n_valid(self, tokens: Sequence[int]) -> int:
        raise RequestError("the grammar fails")


@pytest.mark.parametrize("drafter", [Beyond(1.0), GrammarDrafter()], ids=["any", "grammar"])
def test_a_grammar_that_fails_costs_its_own_request_the_draft_and_nobody_a_drafter(drafter: Drafter) -> None:
    drafting = Drafting([drafter], FixedPolicy(), frozenset({EOG}))
    slots = []
    for seq, grammar in enumerate([None, Failing()]):
        active = Client([3]).active
        active.grammar = grammar  # type: ignore[assignment]
        slots.append(Slot(seq, tokens=[3], active=active, stats={drafter.name: DrafterStats(drafter.name)}))
        slots[-1].sampler = type("Seeded", (), {"seed": 0})()
    drafting.propose(slots, [8, 8])
    assert drafting.names() == [drafter.name]
    assert slots[0].draft.tokens == ([1, EOG] if drafter.name == "prophet" else [])
    assert slots[1].draft.tokens == []
