"""Gains: the text at hand counts most, others count at first, and what is not tried is forgotten."""

from __future__ import annotations

import pytest

from paceline.planner.gains import GainEstimate, Gains


def test_an_estimate_follows_the_text_and_forgets_it() -> None:
    gain = GainEstimate(0.3)
    for _ in range(20):
        gain.learn(0.0)
    assert 0.0 < gain.expected < 0.08
    surest = gain.upper_bound(2.0)
    for _ in range(300):
        gain.decay(0.3)
    assert gain.expected > 0.25
    assert gain.upper_bound(2.0) > surest


def test_a_new_text_starts_from_what_others_gained() -> None:
    gains = Gains()
    for _ in range(200):
        gains.learn(0, "a", 0.6)
    assert 0.55 < gains.of(1, "a").expected < 0.6
    gains.end(0)
    assert gains.of(0, "a").n_trials == 0


def test_one_text_does_not_decide_for_all() -> None:
    gains = Gains()
    for _ in range(200):
        gains.learn(0, "a", 0.6)
    for _ in range(40):
        gains.learn(1, "a", -0.3)
    assert gains.of(1, "a").expected < 0
    assert gains.of(2, "a").expected > 0.2


def test_nobody_is_silent_for_ever() -> None:
    gains = Gains()
    for _ in range(200):
        gains.learn(0, "a", -0.5)
    gains.end(0)

    def may_pay() -> bool:
        return gains.of(1, "a").upper_bound(gains.most["a"]) > 0

    assert not may_pay()
    for _ in range(200):
        gains.end(1)
        if may_pay():
            return
    pytest.fail("it would never be asked again")


def test_one_slow_question_does_not_make_all_dear() -> None:
    gains = Gains()
    for _ in range(20):
        gains.took("a", 0.01)
    assert gains.took("a", 5.0) < 0.031
    assert gains.seconds["a"] < 0.012
