"""Proposals of several parts: cutting keeps the order, outcomes are told apart."""

from __future__ import annotations

from paceline.drafters.base import Draft
from paceline.drafters.proposal import Proposal


def two_parts() -> Proposal:
    proposal = Proposal()
    proposal.add(Draft([1, 2, 3], "look-up", [0.9, 0.8, 0.7]))
    proposal.add(Draft(source="nothing"))
    proposal.add(Draft([4, 5], "model", [0.6, 0.5]))
    return proposal


def test_parts_follow_each_other() -> None:
    proposal = two_parts()
    assert proposal.tokens == [1, 2, 3, 4, 5]
    assert proposal.sources() == ["look-up"] * 3 + ["model"] * 2


def test_cutting_drops_from_the_end() -> None:
    for n in range(7):
        proposal = two_parts()
        proposal.cut(n)
        assert proposal.tokens == [1, 2, 3, 4, 5][:n]
        assert len(proposal.sources()) == min(n, 5)
        assert [len(part.confidence) for part in proposal.parts] == [len(part.tokens) for part in proposal.parts]


def test_outcomes_are_shared_out() -> None:
    def outcome(n: int) -> list[tuple[str, int, bool]]:
        return [(part.source, n_right, reached) for part, n_right, reached in two_parts().outcome(n)]

    assert outcome(0) == [("look-up", 0, True), ("model", 0, False)]
    assert outcome(2) == [("look-up", 2, True), ("model", 0, False)]
    assert outcome(3) == [("look-up", 3, True), ("model", 0, True)]
    assert outcome(5) == [("look-up", 3, True), ("model", 2, True)]
