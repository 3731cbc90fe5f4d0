from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.config.drafters import NgramModParams
from paceline.drafters.base import Draft
from paceline.drafters.ngram_index import BASE
from paceline.drafters.ngram_mod import N_BULK, N_POOR, N_REST, NgramMod, Pool
from paceline.errors import ConfigError
from tests.drafters.lookup import ask, grow, histories


def mod(n_match: int, n_min: int = 1, n_max: int = 8, n_cells: int = 4096) -> NgramMod:
    return NgramMod(NgramModParams(n_match=n_match, n_min=n_min, n_max=n_max, n_cells=n_cells))


class SlowPool:
    """The definition, cell by cell."""

    def __init__(self, n: int, n_cells: int) -> None:
        self.n, self.n_cells = n, n_cells
        self.cells: dict[int, int] = {}

    def cell(self, window: list[int]) -> int:
        value = 0
        for token in window:
            value = (value * BASE + token) % 2**64
        return value % self.n_cells

    def learn(self, tokens: list[int], start: int) -> None:
        if len(self.cells) > self.n_cells // 4:
            self.cells.clear()
        for end in range(max(start, self.n), len(tokens)):
            self.cells[self.cell(tokens[end - self.n : end])] = tokens[end]

    def follow(self, history: list[int], n_max: int) -> list[int]:
        window = list(history)
        while len(history) >= self.n and len(window) < len(history) + n_max:
            token = self.cells.get(self.cell(window[len(window) - self.n :]))
            if token is None:
                break
            window.append(token)
        return window[len(history) :]


def test_rolls_on_over_its_own_tokens() -> None:
    assert ask(mod(2, n_max=5), [1, 2, 3, 4, 5, 1, 2]).tokens == [3, 4, 5, 1, 2]


def test_no_match_no_draft() -> None:
    assert ask(mod(2), [1, 2, 3, 4, 5, 6]).tokens == []


def test_the_last_write_wins() -> None:
    assert ask(mod(2, n_max=1), [1, 2, 3, 1, 2, 4, 1, 2]).tokens == [4]


def test_a_match_may_overlap_the_end_of_the_history() -> None:
    assert ask(mod(3, n_max=4), [5, 5, 5, 5]).tokens == [5, 5, 5, 5]


def test_tiny_histories() -> None:
    for history in ([], [1], [1, 1], [1, 1, 1]):
        assert ask(mod(24), history).tokens == []


def test_fewer_than_n_min_is_no_draft() -> None:
    history = [9, 9, 1, 2, 3, 4, 8, 8, 1, 2, 3]
    assert ask(mod(3, n_min=4, n_max=4), history).tokens == [4, 8, 8, 1]
    assert ask(mod(3, n_min=2), [1, 2, 3, 4, 1, 2, 3]).tokens != []
    assert ask(mod(1, n_min=2), [1, 2, 7, 3, 1]).tokens == [2, 7, 3, 1, 2, 7, 3, 1]
    assert ask(mod(2, n_min=5), [1, 2, 3, 4, 5, 6, 2, 3]).tokens == [4, 5, 6, 2, 3, 4, 5, 6]


def test_a_short_end_is_declined() -> None:
    drafter = mod(2, n_min=3)
    drafter.begin(0, [1, 2, 3, 4])
    drafter.end(0, [1, 2, 3, 4])
    assert ask(drafter, [9, 1, 2]).tokens == []
    assert ask(mod(2, n_min=2), [1, 2, 3, 4]).tokens == []


def test_n_max_of_the_ask_cuts_what_n_min_let_through() -> None:
    assert ask(mod(2, n_min=4), [1, 2, 3, 4, 5, 1, 2], n_max=2).tokens == [3, 4]


def test_goes_on_after_tokens_proposed_by_another() -> None:
    assert ask(mod(2, n_max=2), [1, 2, 3, 4, 9, 1], ahead=[2]).tokens == [3, 4]


def test_requests_and_sequences_help_each_other() -> None:
    drafter = mod(2, n_max=3)
    drafter.begin(0, [1, 2])
    drafter.end(0, [1, 2, 3, 4, 5])
    drafter.begin(1, [7, 1, 2])
    assert ask(drafter, [7, 1, 2], seq=1).tokens == [3, 4, 5]


def test_five_poor_drafts_silence_their_own_sequence_for_a_while_and_no_other() -> None:
    drafter = mod(2)
    history = [1, 2, 3, 4, 5, 1, 2]
    drafter.begin(1, history)
    for _ in range(N_POOR):
        drafter.accept(0, ask(drafter, history), 0)
    assert ask(drafter, history).tokens == []
    assert ask(drafter, history, seq=1).tokens != []
    assert ask(drafter, [*history, *[6] * (N_REST - 2), 1, 2]).tokens != []


def test_a_good_draft_ends_the_row_of_poor_ones() -> None:
    drafter = mod(2)
    history = [1, 2, 3, 4, 5, 1, 2]
    for n_accepted in [0] * (N_POOR - 1) + [8] + [0] * (N_POOR - 1):
        drafter.accept(0, ask(drafter, history), n_accepted)
    assert ask(drafter, history).tokens != []


def test_a_crowded_pool_is_cleared() -> None:
    drafter = mod(1, n_cells=16)
    drafter.begin(0, [])
    drafter.end(0, [1, 2, 3, 4, 5, 6, 7])
    assert ask(drafter, [1], seq=1).tokens == []
    assert ask(drafter, [1, 9, 1], seq=1, n_max=1).tokens == [9]


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="n_min 9 is above its n_max 8"):
        NgramModParams(n_min=9, n_max=8)


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 50), min_size=N_BULK, max_size=2 * N_BULK), st.integers(1, 5), st.sampled_from([16, 500])
)
def test_learning_in_bulk_is_learning_one_by_one(tokens: list[int], n: int, n_cells: int) -> None:
    bulk, slow = Pool(n, n_cells), SlowPool(n, n_cells)
    bulk.learn(tokens, 0)
    slow.learn(tokens, 0)
    assert {cell: token for cell, token in enumerate(bulk.cells) if token >= 0} == slow.cells
    assert bulk.n_used == len(slow.cells)


@settings(max_examples=50)
@given(
    st.lists(histories, min_size=1, max_size=3),
    st.integers(1, 4),
    st.integers(0, 4),
    st.sampled_from([16, 4096]),
    st.integers(),
)
def test_agrees_with_the_definition(prompts: list[list[int]], n: int, n_min: int, n_cells: int, seed: int) -> None:
    slow = SlowPool(n, n_cells)

    class Watched(NgramMod):
        """Lets the slow pool learn at the same moments; without rests, which have their own tests."""

        n_learned = 0

        def begin(self, seq: int, tokens) -> None:  # type: ignore[no-untyped-def]
            self.n_learned = 0
            self.learn(tokens)
            super().begin(seq, tokens)

        def accept(self, seq: int, draft: Draft, n_accepted: int) -> None:
            super().accept(seq, draft, len(draft))

        def end(self, seq: int, tokens) -> None:  # type: ignore[no-untyped-def]
            self.learn(tokens)
            super().end(seq, tokens)

        def learn(self, tokens: list[int]) -> None:
            slow.learn(tokens, self.n_learned)
            self.n_learned = len(tokens)

    drafter = Watched(NgramModParams(n_match=n, n_min=n_min, n_max=6, n_cells=n_cells))

    def check(history: list[int], n_max: int, draft: Draft) -> None:
        drafter.learn(history)
        follow = slow.follow(history, 6)
        assert draft.tokens == (follow[:n_max] if len(follow) >= n_min else [])

    grow(drafter, prompts, seed, check)
