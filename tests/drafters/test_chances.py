"""What is expected of a match: more of longer ones, of agreeing ones, and of those in the text's own latest words."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.drafters.chances import ELSEWHERE, IN_PROMPT, USUAL, Chances, seconded


def test_longer_matches_are_believed_more() -> None:
    chances = [USUAL.of(length) for length in range(80)]
    assert chances == sorted(chances)
    assert (USUAL.of(1), USUAL.of(4), USUAL.of(12)) == (0.33, 0.71, 0.96)
    assert USUAL.growing(1, 2) == [0.33, 0.62]


def test_places_differ() -> None:
    for length in (1, 3, 12, 100):
        assert ELSEWHERE.of(length) < IN_PROMPT.of(length) < USUAL.of(length) < 1


def test_every_vote_counts_up_to_many() -> None:
    chances = [seconded(0.5, n) for n in range(1, 9)]
    assert chances == sorted(set(chances))
    assert chances[0] == 0.5
    assert chances[1] == pytest.approx(2 / 3)
    assert seconded(0.5, 100) == seconded(0.5, 8) < 1


@given(st.integers(0, 400), st.integers(0, 400), st.floats(0, 1.5), st.sampled_from([USUAL, IN_PROMPT, ELSEWHERE]))
def test_a_draft_ends_where_it_becomes_unlikely(length: int, n: int, p_min: float, chances: Chances) -> None:
    growing = chances.growing(length, n)
    assert growing == [chances.of(length + j) for j in range(n)]
    found = chances.n_likely(length, n, p_min)
    assert prod(growing[:found]) >= p_min * (1 - 1e-9) or found == 0
    assert found == n or prod(growing[: found + 1]) < p_min * (1 + 1e-9)
