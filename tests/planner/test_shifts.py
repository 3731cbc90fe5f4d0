"""What is learned of single tokens: quickly at first, apart for the token and the one before it, and not for ever."""

from __future__ import annotations

from itertools import pairwise
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.planner import shifts
from paceline.planner.shifts import FARTHEST, TokenShifts


def test_of_a_new_token_nothing_is_known() -> None:
    assert TokenShifts().shift(1, 2) == 0.0


def test_a_surprise_counts_most_when_it_is_the_first() -> None:
    known, steps = TokenShifts(), [0.0]
    for _ in range(30):
        known.learn(1, 2, 0.9, right=False)
        steps.append(known.shift(1, 2))
    moves = [a - b for a, b in pairwise(steps)]
    assert moves[0] > 1.0
    assert moves[0] == max(moves)
    assert known.shift(8, 2) < 0 > known.shift(1, 9), "both tokens are blamed"
    assert known.shift(8, 9) == 0.0


def test_who_is_right_as_often_as_believed_is_left_alone() -> None:
    known = TokenShifts()
    for i in range(400):
        known.learn(1, 2, 1 / (1 + exp(-log(3) - known.shift(1, 2))), right=i % 4 > 0)
    assert abs(known.shift(1, 2)) < 0.4


def test_a_token_s_true_chance_is_found() -> None:
    """Believed in with 0.5, right in nine of ten cases."""
    known = TokenShifts()
    for i in range(300):
        known.learn(1, 2, 1 / (1 + exp(-known.shift(1, 2))), right=i % 10 > 0)
    assert 1 / (1 + exp(-known.shift(1, 2))) == pytest.approx(0.9, abs=0.06)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.floats(0.005, 0.995), st.booleans()), max_size=200))
def test_shifts_stay_within_bounds(lessons: list[tuple[int, int, float, bool]]) -> None:
    known = TokenShifts()
    for before, token, chance, right in lessons:
        known.learn(before, token, chance, right=right)
        assert abs(known.shift(before, token)) <= 2 * FARTHEST


def test_a_full_table_forgets_what_it_has_not_met_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shifts, "MOST", 8)
    known = TokenShifts()
    for token in (0, 1, 2, 3, 4, 5, 6, 7, 0, 8):
        known.learn(100 + token, token, 0.9, right=False)
    left = {token for token in range(9) if known.shift(-1, token) < 0}
    assert left == {0, 5, 6, 7, 8}
