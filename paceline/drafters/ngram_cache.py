"""`ngram-cache`: propose the token that mostly followed the last 1 to 4 tokens, one after the other.

Three caches are asked in turn, the longest n-gram first: context (this request), dynamic (what earlier requests
generated, kept in a file if one is named), static (2-grams of a corpus, from a file). A cache answers when it has seen
the n-gram often enough and one follower has a large enough share; a follower's score is its count times its count in
the static cache, where that knows it. An n-gram's followers in the context are counted when it is first looked at, over
its newest 32 places, and from then on as they come.
Confidence: the follower's share, for few samples lowered to what a match of that length is worth.
Bound: four index entries for each token of a running request and 16,384 n-grams looked at; `n_ngrams` n-grams in the
dynamic cache; the file's size in the static one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from paceline.config.drafters import NgramCacheParams
from paceline.drafters.base import Draft, Drafter, DraftRequest
from paceline.drafters.chances import USUAL
from paceline.drafters.ngram_counts import N_LONGEST, Followers, Ngram, NgramCounts, read_counts, write_counts
from paceline.drafters.ngram_index import NgramIndex, catch_up_all, prefix_hashes, span
from paceline.errors import ConfigError

N_PLACES = 32
N_LOOKED_AT = 16384
N_STATIC = 2

# By length of the n-gram, 1 to 4: samples needed, share in per cent needed.
CONTEXT_NEEDS = ((2, 66), (2, 50), (1, 50), (1, 50))
DYNAMIC_NEEDS = ((4, 75), (3, 66), (2, 66), (2, 66))
STATIC_NEEDS = (2, 50)


class ContextCounts:
    """Followers within one growing history, counted when first asked for."""

    def __init__(self, tokens: Sequence[int]) -> None:
        prefix = prefix_hashes(tokens)
        self.n_prompt = self._n_tokens = len(tokens)
        self.indexes = [NgramIndex(n, tokens, prefix) for n in range(1, N_LONGEST + 1)]
        self._followers: dict[Ngram, Followers] = {}

    def catch_up(self, tokens: Sequence[int]) -> None:
        for end in range(self._n_tokens, len(tokens)):
            for n in range(1, min(N_LONGEST, end) + 1):
                followers = self._followers.get(tuple(tokens[end - n : end]))
                if followers is not None:
                    followers.add(tokens[end])
        catch_up_all(self.indexes, tokens)
        self._n_tokens = len(tokens)

    def known(self, window: Ngram, tokens: Sequence[int]) -> list[tuple[int, Followers]]:
        """Followers of the window's ends of 1, 2, ... tokens; none after the first end that was never followed."""
        known = []
        for n in range(1, len(window) + 1):
            followers = self._get(window[-n:], tokens)
            if not followers.total:
                break
            known.append((n, followers))
        return known

    def _get(self, ngram: Ngram, tokens: Sequence[int]) -> Followers:
        followers = self._followers.get(ngram)
        if followers is None:
            followers = self._count(ngram, tokens)
            if len(self._followers) >= N_LOOKED_AT:
                self._followers.clear()
            self._followers[ngram] = followers
        return followers

    def _count(self, ngram: Ngram, tokens: Sequence[int]) -> Followers:
        n = len(ngram)
        places = islice(self.indexes[n - 1].places_of(ngram, tokens), N_PLACES)
        return Followers.of([tokens[place + n] for place in places if place + n < len(tokens)])


class NgramCache(Drafter):
    name = "ngram-cache"

    def __init__(self, params: NgramCacheParams) -> None:
        self._params = params
        self._contexts: dict[int, ContextCounts] = {}
        self._static = read_counts(params.static_path) if params.static_path else NgramCounts()
        self._dynamic = load_dynamic(params.dynamic_path, params.n_ngrams)

    def begin(self, seq: int, tokens: Sequence[int]) -> None:
        self._contexts[seq] = ContextCounts(tokens)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> Draft:
        if request.seq not in self._contexts:
            self.begin(request.seq, request.tokens)
        context = self._contexts[request.seq]
        context.catch_up(request.tokens)
        length = len(request.tokens) + len(request.ahead)
        window = tuple(span(request.tokens, request.ahead, max(length - N_LONGEST, 0), length))
        draft = Draft(source=self.name)
        while len(draft) < min(self._params.n_max, request.n_max):
            guess = self._guess(window, context, request.tokens)
            if guess is None:
                break
            token, confidence = guess
            draft.tokens.append(token)
            draft.confidence.append(confidence)
            window = (*window, token)[-N_LONGEST:]
        return draft

    def _guess(self, window: Ngram, context: ContextCounts, tokens: Sequence[int]) -> tuple[int, float] | None:
        """The token after this window and how sure it is."""
        static = self._static.get(window[-N_STATIC:]) if len(window) >= N_STATIC else None
        for n, followers in reversed(context.known(window, tokens)):
            guess = choose(followers, n, CONTEXT_NEEDS[n - 1], static)
            if guess is not None:
                return guess
        for n in range(len(window), 0, -1):
            guess = choose(self._dynamic.get(window[-n:]), n, DYNAMIC_NEEDS[n - 1], static)
            if guess is not None:
                return guess
        return choose(static, N_STATIC, STATIC_NEEDS, None)

    def accept(self, seq: int, draft: Draft, n_accepted: int) -> None:
        """Nothing to learn: the counts come from the text itself."""

    def end(self, seq: int, tokens: Sequence[int]) -> None:
        context = self._contexts.pop(seq, None)
        if context is not None:
            self._dynamic.learn(tokens, context.n_prompt)

    def close(self) -> None:
        self._contexts.clear()
        if self._params.dynamic_path is not None:
            write_counts(self._params.dynamic_path, self._dynamic)


def choose(
    followers: Followers | None, n: int, needs: tuple[int, int], static: Followers | None
) -> tuple[int, float] | None:
    """The follower with the best score, if there are samples enough and its share is large enough."""
    n_samples, percent = needs
    # The most frequent has the largest share: where it falls short, all do.
    if not followers or followers.total < n_samples or not has_share(followers, followers.best, percent):
        return None
    token = best_score(followers, static) if static else followers.best
    if not has_share(followers, token, percent):
        return None
    share, trust = followers.counts[token] / followers.total, 4 / (followers.total + 3)
    return token, share * (1 - trust * (1 - USUAL.of(n)))


def has_share(followers: Followers, token: int, percent: int) -> bool:
    return 100 * followers.counts[token] >= percent * followers.total


def best_score(followers: Followers, static: Followers) -> int:
    """Count times static count; a token the static cache does not know cannot beat the most frequent one."""
    counts, best = followers.counts, followers.best
    scores = {token: counts[token] * n for token, n in static.counts.items() if token in counts}
    return max([best, *scores], key=lambda token: scores.get(token, counts[token]))


def load_dynamic(path: str | None, n_ngrams: int) -> NgramCounts:
    """What the file holds; nothing, if it is to be made at exit."""
    if path is None:
        return NgramCounts(n_ngrams)
    if Path(path).exists():
        return read_counts(path, n_ngrams)
    if not Path(path).absolute().parent.is_dir():
        raise ConfigError(f"the lookup cache {path} cannot be saved: there is no such folder")
    return NgramCounts(n_ngrams)
