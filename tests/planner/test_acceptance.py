"""Beliefs: who else says so, what the text showed, and slots apart."""

from __future__ import annotations

from paceline.drafters.base import Draft
from paceline.engine.beliefs import ALONE, CONTESTED, SECONDED, Beliefs, Offer, Opinions


def draft(tokens: list[int], source: str = "a", confidence: float = 0.5) -> Draft:
    return Draft(tokens, source, [confidence] * len(tokens))


def opinions(tokens: list[int], source: str, offers: list[Offer]) -> list[int]:
    others = Opinions(source, offers)
    return [others.of(token) for token in tokens]


def test_what_others_say_to_each_token() -> None:
    offers: list[Offer] = [((), draft([1, 2, 3, 4])), ((), draft([1, 2, 9], "b"))]
    assert opinions([1, 2, 3, 4], "a", offers) == [SECONDED, SECONDED, CONTESTED, ALONE]
    assert opinions([1, 2, 9], "b", offers) == [SECONDED, SECONDED, CONTESTED]
    assert opinions([1, 2, 9], "c", offers) == [SECONDED, SECONDED, SECONDED]


def test_who_goes_on_after_others_says_nothing_about_them() -> None:
    offers: list[Offer] = [((), draft([1, 2])), ((1, 2), draft([3], "b"))]
    assert opinions([1, 2, 3], "a", offers) == [ALONE, ALONE, SECONDED]
    assert opinions([1, 2, 3], "b", offers) == [SECONDED, SECONDED, ALONE]


def test_agreement_is_believed_and_contradiction_is_not() -> None:
    beliefs = Beliefs()
    mine = draft([1])
    alone, seconded, contested = (
        beliefs.chances(0, [mine], offers)[0]
        for offers in ([((), mine)], [((), mine), ((), draft([1], "b"))], [((), mine), ((), draft([2], "b"))])
    )
    assert contested < alone < seconded


def test_only_what_the_text_showed_teaches() -> None:
    beliefs = Beliefs()
    beliefs.learn(0, [((), draft([1, 2, 3]))], [1])
    assert beliefs.of("a")[ALONE].n_seen == 1
    beliefs.learn(0, [((), draft([1, 2, 3]))], [1, 9, 3])
    assert beliefs.of("a")[ALONE].n_seen == 3
    beliefs.learn(0, [((7,), draft([1, 2, 3]))], [1, 2, 3])
    assert beliefs.of("a")[ALONE].n_seen == 3
    beliefs.learn(0, [((7,), draft([1, 2, 3]))], [7, 1, 2, 3, 4])
    assert beliefs.of("a")[ALONE].n_seen == 6


def test_each_case_is_learned_apart() -> None:
    beliefs = Beliefs()
    for _ in range(200):
        beliefs.learn(0, [((), draft([1])), ((), draft([1], "b"))], [1])
        beliefs.learn(1, [((), draft([1])), ((), draft([2], "b"))], [3])
    beliefs.forget(0)
    beliefs.forget(1)
    both = beliefs.chances(0, [draft([1])], [((), draft([1], "b"))])[0]
    either = beliefs.chances(0, [draft([1])], [((), draft([2], "b"))])[0]
    assert both > 0.9
    assert either < 0.1
    assert 0.3 < beliefs.chances(0, [draft([1])], [])[0] < 0.7
