"""Which tokens followed an n-gram of 1 to 4 tokens, how often; in memory and in llama.cpp's lookup-cache files.

A file is a row of records without header, all little-endian int32: the n-gram in 4 numbers padded with -1, the number
of followers, then a pair (token, count) for each. Bound: a chosen number of n-grams with at most 64 followers each;
the n-grams unseen for longest go first, of the followers the rarest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from paceline.errors import ConfigError
from paceline.files import write_whole

N_LONGEST = 4
N_FOLLOWERS = 64
PAD = -1
MOST = 2**31 - 1

Ngram = tuple[int, ...]


class Followers:
    """The tokens seen after one n-gram. `best` is the most frequent, of equals the one seen last."""

    __slots__ = ("best", "counts", "total")

    def __init__(self) -> None:
        self.total = 0
        self.best = PAD
        self.counts: dict[int, int] = {}

    @classmethod
    def of(cls, newest_first: Sequence[int]) -> Followers:
        """Fewer than N_FOLLOWERS tokens, counted at once."""
        followers = cls()
        if newest_first:
            followers.total = len(newest_first)
            followers.counts = dict(Counter(newest_first))
            followers.best = max(newest_first, key=followers.counts.__getitem__)
        return followers

    def add(self, token: int, count: int = 1) -> None:
        counts = self.counts
        if token not in counts and len(counts) >= N_FOLLOWERS:
            del counts[min((t for t in counts if t != self.best), key=counts.__getitem__)]
        counts[token] = counts.get(token, 0) + count
        self.total += count
        if counts[token] >= counts.get(self.best, 0):
            self.best = token


class NgramCounts:
    """Followers of at most `n_ngrams` n-grams."""

    def __init__(self, n_ngrams: int = MOST) -> None:
        self._n_ngrams = n_ngrams
        self._followers: dict[Ngram, Followers] = {}

    def __len__(self) -> int:
        return len(self._followers)

    def get(self, ngram: Ngram) -> Followers | None:
        return self._followers.get(ngram)

    def items(self) -> Iterator[tuple[Ngram, Followers]]:
        """From the n-gram unseen for longest to the newest."""
        yield from self._followers.items()

    def add(self, ngram: Ngram, token: int, count: int = 1) -> None:
        """A seen n-gram moves to the end of the dict, whose order is thus the order of age."""
        followers = self._followers.pop(ngram, None) or Followers()
        followers.add(token, count)
        self._followers[ngram] = followers
        if len(self._followers) > self._n_ngrams:
            self._forget(max(self._n_ngrams // 8, 1))

    def _forget(self, n: int) -> None:
        for ngram in list(islice(self._followers, n)):
            del self._followers[ngram]

    def learn(self, tokens: Sequence[int], start: int = 0, sizes: Iterable[int] = range(1, N_LONGEST + 1)) -> None:
        """Each token from `start` on followed the n-grams before it."""
        for end in range(start, len(tokens)):
            for n in sizes:
                if n <= end:
                    self.add(tuple(tokens[end - n : end]), tokens[end])


def build_static(texts: Iterable[Sequence[int]]) -> NgramCounts:
    """The static cache of a corpus, one token list for each text: what followed each 2-gram."""
    counts = NgramCounts()
    for tokens in texts:
        counts.learn(tokens, sizes=(2,))
    return counts


def read_counts(path: str, n_ngrams: int = MOST) -> NgramCounts:
    """The n-grams of a lookup-cache file; the last ones, where it holds more than n_ngrams."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the lookup cache {path}: {error.strerror}") from error
    counts = NgramCounts(n_ngrams)
    for ngram, pairs in _records(path, data):
        for token, count in pairs:
            counts.add(ngram, token, count)
    return counts


def _records(path: str, data: bytes) -> Iterator[tuple[Ngram, list[tuple[int, int]]]]:
    if len(data) % 4:
        raise ConfigError(f"the lookup cache {path} is cut off or no lookup cache: {len(data)} bytes")
    numbers = np.frombuffer(data, dtype="<i4").tolist()
    at = 0
    while at < len(numbers):
        head = numbers[at : at + N_LONGEST]
        ngram = tuple(token for token in head if token != PAD)
        n = numbers[at + N_LONGEST] if at + N_LONGEST < len(numbers) else 0
        start, at = at + N_LONGEST + 1, at + N_LONGEST + 1 + 2 * n
        if n <= 0 or at > len(numbers):
            raise ConfigError(f"the lookup cache {path} is cut off or damaged at byte {4 * start - 4}")
        pairs = list(zip(numbers[start:at:2], numbers[start + 1 : at : 2], strict=True))
        well_formed = ngram and min(ngram) >= 0 and head[: len(ngram)] == list(ngram)
        if not well_formed or min(token for token, _ in pairs) < 0 or min(count for _, count in pairs) < 1:
            raise ConfigError(f"the lookup cache {path} is damaged before byte {4 * at}")
        yield ngram, pairs


def write_counts(path: str, counts: NgramCounts) -> None:
    """Whoever reads the file meanwhile sees the old one or the new one, whole."""
    try:
        write_whole(Path(path), _encode(counts))
    except OSError as error:
        raise ConfigError(f"cannot write the lookup cache {path}: {error.strerror}") from error


def _encode(counts: NgramCounts) -> bytes:
    numbers: list[int] = []
    for ngram, followers in counts.items():
        numbers += [*ngram, *[PAD] * (N_LONGEST - len(ngram)), len(followers.counts)]
        # The best goes last, so that reading finds the same best among equals.
        for token, count in sorted(followers.counts.items(), key=lambda pair: pair[0] == followers.best):
            numbers += [token, min(count, MOST)]
    return np.array(numbers, dtype="<i4").tobytes()
