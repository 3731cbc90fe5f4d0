from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.drafters import ngram_index
from paceline.drafters.ngram_index import NgramIndex, catch_up_all, match_length, span
from tests.drafters.lookup import histories


def places(context: list[int], n_history: int, n: int) -> list[int]:
    """Every earlier place within the history, newest first, by looking everywhere."""
    last = len(context) - n
    if last < 0:
        return []
    return [p for p in range(min(last - 1, n_history - n), -1, -1) if context[p : p + n] == context[last:]]


@given(histories, histories, st.lists(st.integers(0, 4), max_size=4), st.integers(1, 6))
def test_places_are_those_a_full_scan_finds(start: list[int], more: list[int], ahead: list[int], n: int) -> None:
    index = NgramIndex(n, start)
    history = list(start)
    for token in [*more, 0]:
        assert list(index.places(history, ahead)) == places(history + ahead, len(history), n)
        assert list(index.places(history)) == places(history, len(history), n)
        history.append(token)


@given(histories, histories, st.integers(1, 4))
def test_sorting_again_changes_nothing(start: list[int], more: list[int], n: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngram_index, "N_LIVE", 5)
        indexes = [NgramIndex(n, start), NgramIndex(n + 1, start)]
        history = list(start)
        for token in more:
            history.append(token)
            catch_up_all(indexes, history)
            assert [list(index.places(history)) for index in indexes] == [
                places(history, len(history), index.n) for index in indexes
            ]


@given(st.integers(0, 60), st.lists(st.integers(0, 80), min_size=1, max_size=4), st.integers(1, 12), st.integers(0, 99))
def test_many_tokens_at_once_are_taken_in_as_one_by_one(n_start: int, chunks: list[int], n: int, seed: int) -> None:
    random = Random(seed)
    history = [random.randrange(-1, 3) for _ in range(n_start)]
    at_once, one_by_one = NgramIndex(n, history), NgramIndex(n, history)
    for chunk in chunks:
        for _ in range(chunk):
            history.append(random.randrange(-1, 3))
            one_by_one.catch_up(history)
        at_once.catch_up(history)
        assert at_once.hash == one_by_one.hash
        assert list(at_once.places(history)) == list(one_by_one.places(history)) == places(history, len(history), n)


def test_a_hash_is_never_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram_index, "MASK", 0)
    index = NgramIndex(2)
    assert list(index.places([1, 2, 3, 4, 1, 2, 5, 6, 1, 2])) == [4, 0]


@given(histories, st.lists(st.integers(0, 4), max_size=6), st.integers(0, 50), st.integers(0, 50))
def test_span_is_a_slice_of_both(tokens: list[int], ahead: list[int], start: int, stop: int) -> None:
    assert span(tokens, ahead, start, stop) == (tokens + ahead)[start:stop]


def test_match_length_reaches_back_to_the_first_difference() -> None:
    tokens = [9, 1, 2, 3, 8, 1, 2, 3]
    assert match_length(tokens, [], 3, 1, 32) == 3
    assert match_length(tokens, [], 3, 1, 2) == 2
    assert match_length([1, 2, 3, 1, 2], [3], 2, 1, 32) == 3
