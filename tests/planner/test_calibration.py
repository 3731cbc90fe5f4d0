"""Calibration: learns how often a confidence is right, forgets, and keeps slots apart."""

from __future__ import annotations

import random

from paceline.planner.calibration import Bias, Calibration


def test_unseen_confidences_are_taken_at_their_word() -> None:
    calibration = Calibration()
    assert abs(calibration.p_accept(0.9) - 0.925) < 0.03
    assert calibration.p_accept(0.2) < calibration.p_accept(0.6) < calibration.p_accept(1.0) < 1.0


def test_it_learns_that_a_drafter_boasts_and_forgets_when_it_mends() -> None:
    calibration, chance = Calibration(), random.Random(2)
    for _ in range(500):
        calibration.learn(0.9, right=chance.random() < 0.3)
    assert 0.2 < calibration.p_accept(0.9) < 0.4
    for _ in range(1500):
        calibration.learn(0.9, right=chance.random() < 0.8)
    assert 0.7 < calibration.p_accept(0.9) < 0.9


def test_a_drafter_that_is_always_wrong_is_soon_believed_nowhere() -> None:
    calibration = Calibration()
    for i in range(20):
        calibration.learn(0.4 + 0.025 * i, right=False)
    assert all(calibration.p_accept(confidence) < 0.5 for confidence in (0.2, 0.5, 0.7, 0.85))
    assert calibration.p_accept(0.3) < 0.1


def test_what_is_believed_at_first_can_be_moved() -> None:
    assert Calibration(-1.0).p_accept(0.5) < Calibration().p_accept(0.5) < Calibration(1.0).p_accept(0.5)


def test_a_slot_that_drafts_badly_loses_trust_alone() -> None:
    calibration, bad, good = Calibration(), Bias(), Bias()
    for _ in range(200):
        bad.learn(0.7, right=False)
        good.learn(0.7, right=True)
    assert calibration.p_accept(0.7, bad.value) < 0.3 < 0.7 < calibration.p_accept(0.7, good.value)
    assert calibration.p_accept(0.7) > 0.6
