"""What drafts may lose: what they gained, and a little more."""

from __future__ import annotations

import pytest

from paceline.planner.purse import DEBT, FIRST, MOST, SHARE, Purse


def test_it_begins_with_less_than_a_plain_step_and_grows_with_time() -> None:
    purse = Purse()
    assert purse.seconds(0.02) == pytest.approx(FIRST * 0.02)
    for _ in range(100):
        purse.book(0.0, 0.02, 0.02)
    assert purse.seconds(0.02) == pytest.approx((FIRST + 100 * SHARE) * 0.02)


def test_what_drafts_lose_is_missing_and_what_they_gain_is_there() -> None:
    purse = Purse()
    purse.book(-0.01, 0.0, 0.02)
    assert purse.seconds(0.02) == pytest.approx(FIRST * 0.02 - 0.01)
    purse.book(0.05, 0.0, 0.02)
    assert purse.seconds(0.02) == pytest.approx(FIRST * 0.02 + 0.04)


def test_a_machine_that_stood_still_is_nobodys_fault() -> None:
    """A minute's sleep in a step of 20 ms: drafts go on 200 steps later."""
    purse = Purse()
    purse.book(-60.0, 60.0, 0.02)
    assert purse.seconds(0.02) == pytest.approx((FIRST - DEBT) * 0.02)
    for _ in range(200):
        purse.book(0.0, 0.02, 0.02)
    assert purse.seconds(0.02) > 0


def test_old_gains_are_not_lost_without_end() -> None:
    purse = Purse()
    for _ in range(1000):
        purse.book(0.02, 0.02, 0.02)
    assert purse.seconds(0.02) == pytest.approx((FIRST + MOST) * 0.02)
