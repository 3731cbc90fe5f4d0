from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.config.drafters import SuffixParams
from paceline.drafters import ngram_index
from paceline.drafters.base import Draft
from paceline.drafters.chances import ELSEWHERE, IN_PROMPT, USUAL, seconded, times
from paceline.drafters.suffix import LONGEST, N_PLACES, SHARED_SIZES, Outputs, Suffix
from paceline.errors import ConfigError
from tests.drafters.lookup import ask, grow, histories


def suffix(n_max: int = 64, p_min: float = 0.0, n_shared: int = 0) -> Suffix:
    return Suffix(SuffixParams(n_max=n_max, p_min=p_min, n_shared=n_shared))


def request(drafter: Suffix, prompt: list[int], output: list[int], seq: int = 9) -> None:
    drafter.begin(seq, prompt)
    drafter.end(seq, prompt + output)


def test_proposes_what_followed_the_longest_match() -> None:
    assert ask(suffix(2), [1, 2, 3, 8, 9, 7, 2, 3, 5, 5, 1, 2, 3]).tokens == [8, 9]


def test_no_match_no_draft() -> None:
    assert ask(suffix(), [1, 2, 3, 4]).tokens == []


def test_the_most_frequent_continuation_wins() -> None:
    history = [1, 2, 5, 1, 2, 5, 1, 2, 6, 8, 1, 2]
    assert ask(suffix(1), history).tokens == [5]


def test_of_equal_continuations_the_newest_wins() -> None:
    assert ask(suffix(1), [1, 5, 7, 1, 6, 8, 1]).tokens == [6]


def test_only_the_winner_s_voters_go_on() -> None:
    history = [1, 5, 6, 1, 5, 6, 1, 4, 8, 1]
    assert ask(suffix(2), history).tokens == [5, 6]


def test_a_loop_is_drafted_past_the_end_of_the_history() -> None:
    assert ask(suffix(7), [1, 2, 3, 1, 2, 3]).tokens == [1, 2, 3, 1, 2, 3, 1]
    assert ask(suffix(4), [5, 5]).tokens == [5, 5, 5, 5]


def test_tiny_histories() -> None:
    for history in ([], [1], [1, 2]):
        assert ask(suffix(), history).tokens == []


def test_limits_of_the_drafter_and_of_the_ask() -> None:
    history = [1, 2, 3, 4, 5, 1, 2]
    assert ask(suffix(2), history).tokens == [3, 4]
    assert ask(suffix(9), history, n_max=1).tokens == [3]
    assert ask(suffix(9), history, n_max=0).tokens == []


def test_goes_on_after_tokens_proposed_by_another() -> None:
    drafter = suffix(2)
    assert ask(drafter, [1, 2, 3, 4, 9, 1], ahead=[2]).tokens == [3, 4]
    assert ask(drafter, [1, 2, 3, 4, 9, 1], ahead=[7]).tokens == []
    assert ask(drafter, [1, 2, 3, 4, 9, 1]).tokens == [2, 3]


def test_confidence_is_the_share_by_the_length_and_counts_for_every_vote() -> None:
    history = [1, 5, 5, 1, 5, 6, 1, 4, 8, 1]
    draft = ask(suffix(1), history)
    assert draft.confidence == [pytest.approx(times(2 / 3 * IN_PROMPT.of(1), 2))]
    long = [*range(100, 120), 7, 8, *range(100, 120)]
    assert ask(suffix(2), long).confidence == [IN_PROMPT.of(20), IN_PROMPT.of(21)]


def test_what_was_just_written_counts_for_more_than_the_prompt_and_that_for_more_than_other_answers() -> None:
    run = list(range(100, 110))
    in_prompt, written, elsewhere = (suffix(1, n_shared=100) for _ in range(3))
    in_prompt.begin(0, [*run, 8])
    written.begin(0, [8])
    request(elsewhere, [1], [*run, 8])
    elsewhere.begin(0, [1])
    found = [
        ask(drafter, [*start, 8, *run]) for drafter, start in ((written, [8, *run]), (in_prompt, run), (elsewhere, [1]))
    ]
    assert [draft.tokens for draft in found] == [[8]] * 3
    confidences = [draft.confidence[0] for draft in found]
    assert confidences == sorted(confidences, reverse=True)
    assert len(set(confidences)) == 3


def test_long_matches_make_long_drafts_and_short_ones_short() -> None:
    text = list(range(100, 200))
    short = ask(suffix(p_min=0.1), [*text, 100])
    long = ask(suffix(p_min=0.1), [*text, *text[:20]])
    assert 1 <= len(short) <= 4
    assert len(long) >= 48


def test_a_long_match_is_found_behind_many_newer_short_ones() -> None:
    text = list(range(100, 140))
    for n_shared in (1, 3, 11):
        newer = [*text[20 - n_shared : 20], 7] * 3 * N_PLACES
        assert ask(suffix(2), [*text, *newer, *text[:20]]).tokens == [120, 121]


def test_earlier_outputs_help_all_sequences() -> None:
    drafter = suffix(3, n_shared=1000)
    request(drafter, [1, 2], [3, 4, 5, 6, 7, 8])
    assert ask(drafter, [9, 3, 4, 5, 6], seq=1).tokens == [7, 8]
    assert ask(drafter, [9, 2, 4, 5, 6], seq=2).tokens == []


def test_the_same_question_finds_its_answer() -> None:
    drafter = suffix(n_shared=1000)
    request(drafter, [1, 2, 3, 4], [5, 6])
    assert ask(drafter, [1, 2, 3, 4]).tokens == [5, 6]


def test_prompts_that_end_alike_do_not_make_answers_alike() -> None:
    drafter, template = suffix(n_shared=1000), [90, 91, 92, 93, 94]
    request(drafter, [1, 2, 3, *template], [5, 6, 7, 8, 9, 10])
    assert ask(drafter, [4, 4, 4, *template], seq=0).tokens == []
    assert ask(drafter, [4, 4, 4, *template, 5], seq=1).tokens == []
    assert ask(drafter, [4, 4, 4, *template, 5, 6, 7, 8], seq=2).tokens == [9, 10]


def test_prompts_of_others_are_not_remembered() -> None:
    drafter = suffix(n_shared=1000)
    prompt = list(range(100, 100 + 2 * LONGEST))
    request(drafter, prompt, [1])
    assert ask(drafter, prompt[:LONGEST]).tokens == []


def test_own_history_goes_before_an_equal_match_elsewhere_but_not_before_a_longer_one() -> None:
    drafter = suffix(1, n_shared=1000)
    request(drafter, [], [1, 2, 3, 4, 5, 7])
    assert ask(drafter, [2, 3, 4, 5, 8, 2, 3, 4, 5], seq=0).tokens == [8]
    assert ask(drafter, [2, 3, 4, 5, 8, 1, 2, 3, 4, 5], seq=1).tokens == [7]


def test_nothing_is_proposed_across_two_outputs() -> None:
    drafter = suffix(n_shared=1000)
    request(drafter, [], [1, 2, 3, 4])
    request(drafter, [], [5, 6, 7, 8])
    assert ask(drafter, [1, 2, 3, 4]).tokens == []


def test_old_outputs_are_forgotten_and_the_memory_is_bounded() -> None:
    drafter = suffix(n_shared=40)
    request(drafter, [], [1, 2, 3, 4, 5])
    assert ask(drafter, [1, 2, 3, 4]).tokens == [5]
    for first in range(100, 1000, 10):
        request(drafter, [], list(range(first, first + 9)))
        assert len(drafter._outputs) <= 40
    assert ask(drafter, [1, 2, 3, 4], seq=1).tokens == []
    assert ask(drafter, [990, 991, 992, 993], seq=2).tokens == [994, 995, 996, 997, 998]


def test_an_output_larger_than_the_memory_leaves_its_end() -> None:
    outputs = Outputs(20)
    outputs.learn([(list(range(100)), 50)])
    assert len(outputs) == 10
    Outputs(0).learn([([1, 2, 3], 1)])


def test_a_reused_seq_starts_anew() -> None:
    drafter = suffix()
    drafter.begin(0, [1, 2, 3, 4])
    drafter.end(0, [1, 2, 3, 4])
    drafter.begin(0, [9])
    assert ask(drafter, [9, 1, 2]).tokens == []


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="p_min"):
        SuffixParams(p_min=1.5)


def slow_match(context: list[int], text: list[int], before: int, n_least: int) -> tuple[int, list[int]]:
    """The longest end of the context that ends in the text before this place, and all such places, newest first."""
    for n in range(min(LONGEST, len(context)), n_least - 1, -1):
        ends = [e for e in range(min(before - 1, len(text)), n - 1, -1) if text[e - n : e] == context[-n:]]
        if ends:
            return n, ends
    return 0, []


def slow_output_match(context: list[int], text: list[int], starts: list[int]) -> tuple[int, list[int]]:
    """The same in earlier outputs, where at least 4 tokens of the match must be the output's own, or all be matched."""
    n, ends = slow_match(context, text, len(text), SHARED_SIZES[0])
    if n in (0, len(context), LONGEST):
        return n, ends
    inside = {e: e - max([start for start in starts if start <= e], default=e) for e in ends}
    ends = [e for e in ends if inside[e] >= SHARED_SIZES[0]]
    return (min(n, inside[ends[0]]), ends) if ends else (0, [])


def slow_draft(
    history: list[int],
    ahead: list[int],
    texts: list[tuple[list[int], list[int]]],
    n_max: int,
    p_min: float,
    n_prompt: int = 10**6,
) -> list[int]:
    context = history + ahead
    matches = [(*slow_match(context, history, len(context), 1), context)]
    matches += [(*slow_output_match(context, text, starts), text) for text, starts in texts]
    length, ends, source = max(matches, key=lambda match: match[0])
    # The history goes on with the draft itself; a copy, since earlier outputs do not.
    chances = ELSEWHERE if source is not context else IN_PROMPT if ends and ends[0] < n_prompt else USUAL
    source = context if source is context else list(source)
    chance = 1.0
    draft: list[int] = []
    while ends and len(draft) < n_max:
        said = [source[e + len(draft)] for e in ends]
        best = [t for t, _ in Counter(t for t in said if t >= 0).most_common(1)]
        if not best:
            break
        n_votes = said.count(best[0])
        chance *= seconded(n_votes / len(said) * chances.of(length + len(draft)), n_votes)
        if chance < p_min:
            break
        draft.append(best[0])
        ends = [e for e, token in zip(ends, said, strict=True) if token == best[0]]
        context.append(best[0])
    return draft


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=20), min_size=1, max_size=3),
    st.sampled_from([0.0, 0.1, 0.4]),
    st.sampled_from([0, 60, 1000]),
    st.integers(),
)
def test_agrees_with_a_full_scan(prompts: list[list[int]], p_min: float, n_shared: int, seed: int) -> None:
    halves: list[tuple[list[int], list[int]]] = []

    class Watched(Suffix):
        n_prompt = 0

        def begin(self, seq, tokens) -> None:  # type: ignore[no-untyped-def]
            self.n_prompt = len(tokens)
            super().begin(seq, tokens)

        def end(self, seq, tokens) -> None:  # type: ignore[no-untyped-def]
            super().end(seq, tokens)
            output = [*tokens[max(self.n_prompt - LONGEST, 0) :], -1][-(n_shared // 2) :]
            if n_shared == 0:
                return
            if not halves or len(halves[0][0]) + len(output) > n_shared // 2:
                halves[:] = [([], []), *halves[:1]]
            text, starts = halves[0]
            text.extend(output)
            starts.append(len(text) - min(len(output), len(tokens) - self.n_prompt + 1))

    def check(history: list[int], n_max: int, draft: Draft) -> None:
        assert draft.tokens == slow_draft(history, [], halves, n_max, p_min, drafter.n_prompt)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paceline.drafters.suffix.N_PLACES", 10**6)
        patch.setattr(ngram_index, "N_LIVE", 20)
        drafter = Watched(SuffixParams(p_min=p_min, n_shared=n_shared))
        grow(drafter, prompts, seed, check, n_steps=8)


@given(histories, st.lists(st.integers(0, 4), max_size=6))
def test_ahead_is_context_but_never_a_place_to_match(history: list[int], ahead: list[int]) -> None:
    drafter = suffix(10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paceline.drafters.suffix.N_PLACES", 10**6)
        assert ask(drafter, history, ahead=ahead).tokens == slow_draft(history, ahead, [], 10, 0.0)
        assert ask(drafter, history).tokens == slow_draft(history, [], [], 10, 0.0)
