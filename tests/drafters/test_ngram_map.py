from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.config.drafters import NgramParams
from paceline.drafters.base import Draft
from paceline.drafters.ngram_map import NgramMapK, NgramMapK4V
from tests.drafters.lookup import ask, grow, histories

KINDS = pytest.mark.parametrize("kind", [NgramMapK, NgramMapK4V])


def map_k(n: int, m: int, min_hits: int = 1) -> NgramMapK:
    return NgramMapK(NgramParams(size_n=n, size_m=m, min_hits=min_hits))


def map_k4v(n: int, m: int, min_hits: int = 1) -> NgramMapK4V:
    return NgramMapK4V(NgramParams(size_n=n, size_m=m, min_hits=min_hits))


def newest(history: list[int], places: list[int], n: int, m: int) -> list[int]:
    return history[places[-1] + n :][:m]


def most_frequent(history: list[int], places: list[int], n: int, m: int) -> list[int]:
    values = [tuple(history[p + n : p + n + m]) for p in reversed(places) if p + n + m <= len(history)]
    kept = list(dict.fromkeys(values))[:4]
    counts = [values.count(value) for value in kept]
    if not kept or (len(kept) > 1 and max(counts) < 2 * (sum(counts) - max(counts))):
        return []
    return list(kept[counts.index(max(counts))])


@KINDS
def test_proposes_what_followed_the_key(kind: type[NgramMapK]) -> None:
    drafter = kind(NgramParams(size_n=2, size_m=3))
    assert ask(drafter, [1, 2, 3, 4, 5, 1, 2]).tokens == [3, 4, 5]


@KINDS
def test_no_match_no_draft(kind: type[NgramMapK]) -> None:
    assert ask(kind(NgramParams(size_n=2, size_m=3)), [1, 2, 3, 4, 5, 6]).tokens == []


@KINDS
def test_tiny_histories(kind: type[NgramMapK]) -> None:
    for history in ([], [1], [1, 1], [1, 1, 1]):
        assert ask(kind(NgramParams(size_n=12, size_m=4)), history).tokens == []
    assert ask(kind(NgramParams(size_n=1, size_m=1)), [1, 1]).tokens == [1]


@KINDS
def test_min_hits_occurrences_of_the_key_are_needed(kind: type[NgramMapK]) -> None:
    once = [1, 2, 3, 4, 1, 2]
    assert ask(kind(NgramParams(size_n=2, size_m=2, min_hits=2)), once).tokens == []
    assert ask(kind(NgramParams(size_n=2, size_m=2, min_hits=2)), [*once, 3, 4, 1, 2]).tokens == [3, 4]


@KINDS
def test_n_max_cuts_the_draft(kind: type[NgramMapK]) -> None:
    drafter = kind(NgramParams(size_n=2, size_m=3))
    assert ask(drafter, [1, 2, 3, 4, 5, 1, 2], n_max=2).tokens == [3, 4]
    assert ask(drafter, [1, 2, 3, 4, 5, 1, 2], n_max=0).tokens == []


@KINDS
def test_goes_on_after_tokens_proposed_by_another(kind: type[NgramMapK]) -> None:
    drafter = kind(NgramParams(size_n=2, size_m=3))
    assert ask(drafter, [1, 2, 3, 4, 5, 1], ahead=[2]).tokens == [3, 4, 5]
    assert ask(drafter, [1, 2, 3, 4, 5, 1]).tokens == []


def test_map_k_takes_the_newest_of_several_continuations() -> None:
    assert ask(map_k(2, 2), [1, 2, 3, 3, 1, 2, 3, 3, 1, 2, 4, 4, 1, 2]).tokens == [4, 4]


def test_map_k_may_overlap_the_end_of_the_history() -> None:
    assert ask(map_k(3, 9), [5, 5, 5, 5]).tokens == [5]


def test_map_k4v_takes_the_winner_though_it_is_not_the_newest() -> None:
    twice_3_once_4 = [1, 2, 3, 3, 1, 2, 3, 3, 1, 2, 4, 4, 1, 2]
    assert ask(map_k4v(2, 2), twice_3_once_4).tokens == [3, 3]


def test_map_k4v_declines_when_the_continuations_disagree() -> None:
    assert ask(map_k4v(2, 2), [1, 2, 3, 3, 1, 2, 4, 4, 1, 2]).tokens == []


def test_map_k4v_wants_continuations_in_full() -> None:
    assert ask(map_k4v(2, 4), [1, 2, 3, 1, 2]).tokens == []
    assert ask(map_k4v(2, 3), [1, 2, 3, 1, 2]).tokens == [3, 1, 2]


def test_map_k4v_keeps_the_four_newest_continuations() -> None:
    blocks = [[1, 2, 3]] * 3 + [[1, 2, x] for x in (4, 5, 6, 7)]
    history = [token for block in blocks for token in block]
    assert ask(map_k4v(2, 1), [*history, 1, 2]).tokens == []
    more = [token for block in [[1, 2, 7]] * 5 for token in block]
    assert ask(map_k4v(2, 1), [*history, *more, 1, 2]).tokens == [7]


def test_map_k4v_weighs_the_newest_places() -> None:
    n = NgramMapK4V.n_places
    assert ask(map_k4v(1, 1), [*[1, 4] * 3 * n, *[1, 5] * n, 1]).tokens == [5]


def test_map_k4v_believes_disputed_tokens_less() -> None:
    disputed = [1, 2, 3, 3, 1, 2, 3, 3, 1, 2, 3, 4, 9, 1, 2]
    confidence = ask(map_k4v(2, 2), disputed).confidence
    undisputed = ask(map_k(2, 2), disputed).confidence
    assert confidence[0] == undisputed[0]
    assert confidence[1] == pytest.approx(undisputed[1] * 2 / 3)


@KINDS
def test_a_wrong_draft_shortens_the_next_and_right_ones_lengthen_it_again(kind: type[NgramMapK]) -> None:
    drafter = kind(NgramParams(size_n=2, size_m=6))
    history = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2]
    lengths = []
    for n_accepted in (0, 1, 2, 4, 6):
        draft = ask(drafter, history)
        lengths.append(len(draft))
        drafter.accept(0, draft, n_accepted)
    assert lengths == [6, 1, 2, 4, 6]


def test_a_draft_cut_by_the_engine_does_not_shorten_the_next() -> None:
    drafter = map_k(2, 6)
    history = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2]
    drafter.accept(0, ask(drafter, history).cut(2), 2)
    assert len(ask(drafter, history)) == 6


def test_a_limit_belongs_to_its_key() -> None:
    drafter = map_k(2, 3)
    history = [1, 2, 3, 4, 5, 1, 2]
    drafter.accept(0, ask(drafter, history), 0)
    assert len(ask(drafter, [*history, 3])) == 3


@KINDS
def test_a_reused_seq_starts_anew(kind: type[NgramMapK]) -> None:
    drafter = kind(NgramParams(size_n=2, size_m=3))
    history = [1, 2, 3, 4, 5, 1, 2]
    drafter.begin(0, history)
    drafter.accept(0, ask(drafter, history), 0)
    drafter.end(0, history)
    drafter.begin(0, history)
    assert ask(drafter, history).tokens == [3, 4, 5]


@KINDS
@given(
    st.lists(histories, min_size=1, max_size=3), st.integers(1, 4), st.integers(1, 6), st.integers(1, 3), st.integers()
)
def test_agrees_with_a_full_scan(
    kind: type[NgramMapK], prompts: list[list[int]], n: int, m: int, min_hits: int, seed: int
) -> None:
    choose = newest if kind is NgramMapK else most_frequent
    limits: Counter[tuple[int, ...]] = Counter()

    def key_of(history: list[int], follow: list[int]) -> tuple[int, ...]:
        return (*history[-n:], -1, *follow) if kind is NgramMapK4V else tuple(history[-n:])

    class Watched(kind):  # type: ignore[misc, valid-type]
        n_places = 1 if kind is NgramMapK else 10**6

        def begin(self, seq: int, tokens: list[int]) -> None:
            limits.clear()
            super().begin(seq, tokens)

        def accept(self, seq: int, draft: Draft, n_accepted: int) -> None:
            limit = limits.get(self.key, m)
            limits[self.key] = max(n_accepted, 1) if n_accepted < len(draft) else min(max(limit, 2 * n_accepted), m)
            super().accept(seq, draft, n_accepted)

    drafter = Watched(NgramParams(size_n=n, size_m=m, min_hits=min_hits))

    def check(history: list[int], n_max: int, draft: Draft) -> None:
        last = len(history) - n
        places = [p for p in range(last) if history[p : p + n] == history[last:]]
        follow = choose(history, places, n, m) if len(places) >= min_hits else []
        drafter.key = key_of(history, follow)
        assert draft.tokens == follow[: min(n_max, limits.get(drafter.key, m))]

    grow(drafter, prompts, seed, check)
