from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.config.drafters import NgramCacheParams
from paceline.drafters.base import Draft
from paceline.drafters.ngram_cache import N_PLACES, NgramCache
from paceline.drafters.ngram_counts import build_static, write_counts
from paceline.errors import ConfigError
from tests.drafters.lookup import ask, grow, histories


def cache(n_max: int = 8, static: Path | None = None, dynamic: Path | None = None) -> NgramCache:
    return NgramCache(
        NgramCacheParams(
            n_max=n_max,
            static_path=str(static) if static else None,
            dynamic_path=str(dynamic) if dynamic else None,
        )
    )


def static_of(path: Path, texts: list[list[int]]) -> Path:
    write_counts(str(path), build_static(texts))
    return path


def request(drafter: NgramCache, prompt: list[int], output: list[int]) -> None:
    drafter.begin(0, prompt)
    drafter.end(0, prompt + output)


def test_one_sample_of_three_tokens_is_enough() -> None:
    assert ask(cache(), [1, 2, 3, 4, 9, 1, 2, 3], n_max=2).tokens == [4, 9]


def test_one_sample_of_two_tokens_is_not() -> None:
    assert ask(cache(), [1, 2, 3, 9, 1, 2]).tokens == []
    assert ask(cache(1), [1, 2, 3, 9, 1, 2, 3, 8, 1, 2]).tokens == [3]


def test_no_match_no_draft() -> None:
    assert ask(cache(), [1, 2, 3, 4, 5, 6]).tokens == []


def test_the_longest_n_gram_decides() -> None:
    history = [5, 1, 2, 3, 7, 5, 1, 2, 3, 7, 6, 1, 2, 3, 8, 6, 1, 2, 3]
    assert ask(cache(1), history).tokens == [8]


def test_a_follower_needs_its_share() -> None:
    three_ways = [1, 4, 1, 5, 1, 6, 1]
    two_to_one = [1, 4, 1, 4, 1, 5, 1]
    assert ask(cache(1), three_ways).tokens == []
    assert ask(cache(1), two_to_one).tokens == [4]


def test_the_newest_places_of_an_n_gram_are_counted() -> None:
    changed_its_mind = [*[1, 4, 9] * 3 * N_PLACES, *[1, 5, 8] * N_PLACES, 7, 1]
    assert ask(cache(1), changed_its_mind).tokens == [5]


def test_overlap_with_the_end_of_the_history() -> None:
    assert ask(cache(3), [5, 5, 5]).tokens == [5, 5, 5]
    assert ask(cache(3), [5, 5]).tokens == []


def test_tiny_histories() -> None:
    for history in ([], [1], [1, 2]):
        assert ask(cache(), history).tokens == []


def test_limits_of_the_cache_and_of_the_ask() -> None:
    history = [1, 2, 3, 4, 5, 6, 1, 2, 3]
    assert ask(cache(2), history).tokens == [4, 5]
    assert ask(cache(8), history, n_max=1).tokens == [4]
    assert ask(cache(8), history, n_max=0).tokens == []


def test_goes_on_after_tokens_proposed_by_another() -> None:
    drafter = cache(1)
    assert ask(drafter, [1, 2, 3, 4, 9, 1], ahead=[2, 3]).tokens == [4]
    assert ask(drafter, [1, 2, 3, 4, 9, 1]).tokens == []


def test_more_samples_are_believed_more() -> None:
    few = ask(cache(1), [1, 2, 3, 4, 9, 1, 2, 3])
    many = ask(cache(1), [*[1, 2, 3, 4, 9] * 20, 1, 2, 3])
    assert few.tokens == many.tokens == [4]
    assert few.confidence[0] < many.confidence[0] <= 1.0


def test_earlier_requests_help_with_what_they_generated() -> None:
    drafter = cache(1)
    request(drafter, [1, 2], [3, 4])
    assert ask(drafter, [9, 1, 2, 3], seq=1).tokens == []
    request(drafter, [1, 2], [3, 4])
    assert ask(drafter, [9, 1, 2, 3], seq=2).tokens == [4]
    assert ask(drafter, [9, 1, 2], seq=3).tokens == []


def test_this_request_goes_before_earlier_ones() -> None:
    drafter = cache(1)
    for _ in range(9):
        request(drafter, [1, 2, 3], [4])
    assert ask(drafter, [1, 2, 3, 5, 1, 2, 3], seq=1).tokens == [5]


def test_the_static_cache_is_asked_last(tmp_path: Path) -> None:
    static = static_of(tmp_path / "static", [[1, 2, 7], [1, 2, 7], [1, 2, 8]])
    assert ask(cache(1, static=static), [9, 1, 2]).tokens == [7]
    assert ask(cache(1, static=static), [1, 2, 5, 1, 2, 5, 1, 2]).tokens == [5]


def test_the_static_cache_breaks_a_tie(tmp_path: Path) -> None:
    static = static_of(tmp_path / "static", [[1, 2, 5]] * 2)
    tie = [1, 2, 5, 1, 2, 6, 1, 2]
    assert ask(cache(1), tie).tokens == [6]
    assert ask(cache(1, static=static), tie).tokens == [5]


def test_a_static_favourite_without_the_share_spoils_the_draft(tmp_path: Path) -> None:
    static = static_of(tmp_path / "static", [[1, 2, 5]] * 9 + [[1, 2, 6]] * 9 + [[1, 2, 7]] * 9)
    history = [1, 2, 5, 11, 1, 2, 6, 12, 1, 2, 6, 13, 1, 2]
    assert ask(cache(1, static=static), history).tokens == [6]
    static = static_of(tmp_path / "static", [[1, 2, 5]] * 9 + [[1, 2, 6]] + [[1, 2, 7]] * 9)
    assert ask(cache(1, static=static), history).tokens == []


def test_the_dynamic_cache_is_saved_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "dynamic"
    first = cache(1, dynamic=path)
    request(first, [1, 2], [3, 4])
    request(first, [1, 2], [3, 4])
    first.close()
    assert ask(cache(1, dynamic=path), [9, 1, 2, 3]).tokens == [4]


def test_a_missing_static_file_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        cache(static=tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="no such folder"):
        cache(dynamic=tmp_path / "nowhere" / "dynamic")


def test_a_damaged_dynamic_file_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "dynamic"
    path.write_bytes(b"not a cache")
    with pytest.raises(ConfigError, match="dynamic"):
        cache(dynamic=path)
    assert path.read_bytes() == b"not a cache"


def test_sequences_do_not_see_each_other() -> None:
    drafter = cache(1)
    drafter.begin(0, [1, 2, 3, 4])
    drafter.begin(1, [1, 2, 3])
    assert ask(drafter, [1, 2, 3], seq=1).tokens == []


def slow_guess(
    context: list[int], n_history: int, outputs: list[tuple[list[int], int]], trigrams: list[tuple[int, ...]]
) -> int | None:
    """The definition by full scans. `outputs` are earlier histories with the length of their prompts, `trigrams` those
    of the static cache's corpus, in order."""
    static = Counter(trigrams)

    def followers(texts: list[tuple[list[int], int]], ngram: list[int]) -> list[int]:
        n = len(ngram)
        return [t[e] for t, start in texts for e in range(max(start, n), len(t)) if t[e - n : e] == ngram]

    def winner(seen: list[int], n_samples: int, percent: int, weigh: bool) -> int | None:
        if len(seen) < n_samples:
            return None
        counts = Counter(seen)
        last = {token: i for i, token in enumerate(seen)}
        known = {t: c for t, c in static.items() if list(t[:2]) == context[-2:]} if weigh else {}
        score = {t: c * known.get((*context[-2:], t), 1) for t, c in counts.items()}
        token = max(counts, key=lambda t: (score[t], counts[t], last[t]))
        return token if 100 * counts[token] >= percent * len(seen) else None

    history = [(context[:n_history], 0)]
    for texts, needs in (
        (history, ((2, 66), (2, 50), (1, 50), (1, 50))),
        (outputs, ((4, 75), (3, 66), (2, 66), (2, 66))),
    ):
        for n in range(min(4, len(context)), 0, -1):
            token = winner(followers(texts, context[-n:]), *needs[n - 1], weigh=len(context) >= 2)
            if token is not None:
                return token
    two = [t[2] for t in trigrams if list(t[:2]) == context[-2:]]
    return winner(two, 2, 50, weigh=False) if len(context) >= 2 else None


@settings(max_examples=50)
@given(st.lists(histories, min_size=1, max_size=3), st.lists(histories, max_size=2), st.integers())
def test_agrees_with_the_definition(
    tmp_path_factory: pytest.TempPathFactory, prompts: list[list[int]], corpus: list[list[int]], seed: int
) -> None:
    static = [tuple(t[i : i + 3]) for t in corpus for i in range(len(t) - 2)]
    path = static_of(tmp_path_factory.mktemp("cache") / "static", corpus)
    outputs: list[tuple[list[int], int]] = []

    class Watched(NgramCache):
        n_prompt = 0

        def begin(self, seq, tokens) -> None:  # type: ignore[no-untyped-def]
            self.n_prompt = len(tokens)
            super().begin(seq, tokens)

        def end(self, seq, tokens) -> None:  # type: ignore[no-untyped-def]
            outputs.append((list(tokens), self.n_prompt))
            super().end(seq, tokens)

    def check(history: list[int], n_max: int, draft: Draft) -> None:
        context = list(history)
        for token in draft.tokens:
            assert slow_guess(context, len(history), outputs, static) == token
            context.append(token)
        if len(draft) < min(4, n_max):
            assert slow_guess(context, len(history), outputs, static) is None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paceline.drafters.ngram_cache.N_PLACES", 10**6)
        grow(Watched(NgramCacheParams(n_max=4, static_path=str(path))), prompts, seed, check, n_steps=6)
