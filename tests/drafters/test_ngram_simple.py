from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.config.drafters import NgramParams
from paceline.drafters.base import Draft, DraftRequest
from paceline.drafters.ngram_simple import NgramSimple
from tests.drafters.lookup import ask, grow, histories


def simple(n: int, m: int, min_hits: int = 1) -> NgramSimple:
    return NgramSimple(NgramParams(size_n=n, size_m=m, min_hits=min_hits))


def reference(history: list[int], n: int, m: int, min_hits: int) -> list[int]:
    last = len(history) - n
    places = [p for p in range(last) if history[p : p + n] == history[last:]]
    if len(places) < min_hits:
        return []
    follow = history[places[-1] + n :][:m]
    return follow if len(follow) >= min(n, m) else []


def test_proposes_what_followed_the_match() -> None:
    assert ask(simple(2, 3), [1, 2, 3, 4, 5, 1, 2]).tokens == [3, 4, 5]


def test_the_first_token_of_the_history_can_match() -> None:
    assert ask(simple(1, 2), [7, 8, 9, 7]).tokens == [8, 9]


def test_no_match_no_draft() -> None:
    assert ask(simple(2, 3), [1, 2, 3, 4, 5, 6]).tokens == []


def test_of_several_continuations_the_newest_is_taken() -> None:
    assert ask(simple(2, 2), [1, 2, 3, 3, 1, 2, 4, 4, 1, 2]).tokens == [4, 4]


def test_a_match_may_overlap_the_end_of_the_history() -> None:
    assert ask(simple(3, 1), [5, 5, 5, 5]).tokens == [5]


def test_declines_when_too_little_follows() -> None:
    assert ask(simple(3, 9), [5, 5, 5, 5]).tokens == []
    assert ask(simple(2, 9), [1, 2, 3, 1, 2]).tokens == [3, 1, 2]


def test_only_the_newest_match_counts_when_too_little_follows() -> None:
    assert ask(simple(2, 9), [5, 5, 1, 2, 3, 5, 5, 5]).tokens == []


def test_tiny_histories() -> None:
    for history in ([], [1], [1, 1], [1, 1, 1]):
        assert ask(simple(12, 48), history).tokens == []
    assert ask(simple(1, 1), [1, 1]).tokens == [1]


def test_n_max_cuts_the_draft() -> None:
    history = [1, 2, 3, 4, 5, 1, 2]
    assert ask(simple(2, 3), history, n_max=1).tokens == [3]
    assert ask(simple(2, 3), history, n_max=0).tokens == []


def test_min_hits_earlier_occurrences_are_needed() -> None:
    once = [1, 2, 3, 4, 1, 2]
    assert ask(simple(2, 2, min_hits=2), once).tokens == []
    assert ask(simple(2, 2, min_hits=2), [*once, 3, 4, 1, 2]).tokens == [3, 4]


def test_goes_on_after_tokens_proposed_by_another() -> None:
    assert ask(simple(2, 3), [1, 2, 3, 4, 5, 9], ahead=[1, 2]).tokens == [3, 4, 5]
    drafter = simple(2, 3)
    assert ask(drafter, [1, 2, 3, 4, 5, 1], ahead=[2]).tokens == [3, 4, 5]
    assert ask(drafter, [1, 2, 3, 4, 5, 1]).tokens == []


def test_a_longer_match_is_believed_more() -> None:
    short = ask(simple(1, 2), [1, 5, 7, 7, 2, 5])
    long = ask(simple(1, 2), [1, 5, 7, 7, 1, 5])
    assert short.tokens == long.tokens == [7, 7]
    assert short.confidence[0] < long.confidence[0]
    assert short.confidence[0] < short.confidence[1]


def test_sequences_do_not_see_each_other() -> None:
    drafter = simple(2, 2)
    drafter.begin(0, [1, 2, 3, 4])
    drafter.begin(1, [1, 2, 5, 6])
    zero, one = drafter.draft([DraftRequest(0, [1, 2, 3, 4, 1, 2], 8), DraftRequest(1, [1, 2, 5, 6, 1, 2], 8)])
    assert (zero.tokens, one.tokens) == ([3, 4], [5, 6])


def test_a_reused_seq_starts_anew() -> None:
    drafter = simple(2, 2)
    drafter.begin(0, [1, 2, 3, 4])
    drafter.end(0, [1, 2, 3, 4])
    drafter.begin(0, [1, 2])
    assert ask(drafter, [1, 2, 1, 2]).tokens == [1, 2]


@given(
    st.lists(histories, min_size=1, max_size=3), st.integers(1, 4), st.integers(1, 6), st.integers(1, 3), st.integers()
)
def test_agrees_with_a_full_scan(prompts: list[list[int]], n: int, m: int, min_hits: int, seed: int) -> None:
    def check(history: list[int], n_max: int, draft: Draft) -> None:
        assert draft.tokens == reference(history, n, m, min_hits)[:n_max]

    grow(simple(n, m, min_hits), prompts, seed, check)


@given(histories, st.lists(st.integers(0, 4), max_size=6), st.integers(1, 4), st.integers(1, 6))
def test_ahead_is_context_but_never_a_place_to_match(history: list[int], ahead: list[int], n: int, m: int) -> None:
    context, last = history + ahead, len(history) + len(ahead) - n
    places = [p for p in range(min(last, len(history) - n + 1)) if context[p : p + n] == context[last:]]
    follow = context[places[-1] + n :][:m] if places else []
    drafter = simple(n, m)
    assert ask(drafter, history, ahead=ahead).tokens == (follow if len(follow) >= min(n, m) else [])
    assert ask(drafter, history).tokens == reference(history, n, m, 1)
