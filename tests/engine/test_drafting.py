"""Asking drafters: what they say is cut where the text would end."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.drafters.base import Draft, DraftRequest
from paceline.drafters.proposal import Proposal
from paceline.engine.drafting import Drafting
from paceline.engine.slot import Slot
from paceline.engine.stats import DrafterStats
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
