"""Where each run of n tokens occurred in a history. Knows hashes and places; nothing of drafts.

A place is the index of an n-gram's first token. The history present at construction is hashed and sorted by numpy, the
place in the low bits of its hash (8 bytes a token); what comes later goes token by token into a dict and a chain of
older places (about 130 bytes a token), until there are 8,192 of those and all is sorted again. Looking up costs a
binary search and a dict access, however long the history. A hash is never trusted: every place handed out was compared
with the tokens. Bound: one entry for each token of the history, whatever n.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

BASE = 6364136223846793005
MASK = 2**64 - 1
MIX = 0x9E3779B97F4A7C15
N_LIVE = 8192
MANY = 48  # tokens to take in: numpy hashes so many quicker than Python does


def span(tokens: Sequence[int], ahead: Sequence[int], start: int, stop: int) -> list[int]:
    """Tokens start..stop of the history and what was proposed to follow it, without joining the two."""
    n = len(tokens)
    if stop <= n:
        return list(tokens[start:stop])
    return [*tokens[start:n], *ahead[max(start - n, 0) : stop - n]]


def hash_of(tokens: Sequence[int]) -> int:
    """The polynomial hash of these tokens, modulo 2^64."""
    value = 0
    for token in tokens:
        value = (value * BASE + token) & MASK
    return value


def prefix_hashes(tokens: Sequence[int]) -> npt.NDArray[np.uint64]:
    """Entry k is the polynomial hash of the first k tokens, modulo 2^64.

    The base is odd and so has an inverse: the recurrence h' = h * BASE + token becomes one cumulative sum.
    """
    n = len(tokens)
    values = np.array(tokens, dtype=np.int64).view(np.uint64)
    powers = np.full(n + 1, BASE, dtype=np.uint64)
    inverses = np.full(n + 1, pow(BASE, -1, 2**64), dtype=np.uint64)
    powers[0] = inverses[0] = 1
    powers, inverses = np.cumprod(powers), np.cumprod(inverses)
    hashes = np.zeros(n + 1, dtype=np.uint64)
    hashes[1:] = np.cumsum(values * inverses[:n]) * powers[:n]
    return hashes


class NgramIndex:
    """All places of all n-grams of one growing history."""

    __slots__ = ("_first_live", "_newest", "_older", "_place_mask", "_sorted", "_weight", "hash", "n", "n_tokens")

    def __init__(self, n: int, tokens: Sequence[int] = (), prefix: npt.NDArray[np.uint64] | None = None) -> None:
        """`prefix` saves work when several sizes index the same tokens: their `prefix_hashes`."""
        self.n = n
        self._weight = pow(BASE, n, 2**64)
        self._sort(tokens, prefix_hashes(tokens) if prefix is None else prefix)

    def _sort(self, tokens: Sequence[int], prefix: npt.NDArray[np.uint64]) -> None:
        hashes = self._hashes(prefix)
        # Hash of the last n tokens, or of all while there are fewer.
        self.hash = int(hashes[-1]) if len(hashes) else int(prefix[-1])
        self.n_tokens = len(tokens)
        self._first_live = len(hashes)
        self._place_mask = 2 ** len(hashes).bit_length() - 1
        # The hashes of short n-grams differ in their low bits only, which make room for the place.
        entries = hashes * np.uint64(MIX) & np.uint64(MASK ^ self._place_mask)
        entries |= np.arange(len(hashes), dtype=np.uint64)
        self._sorted = array("Q", np.sort(entries).tobytes())
        self._newest: dict[int, int] = {}
        self._older = array("i")

    def is_crowded(self, tokens: Sequence[int]) -> bool:
        """Whether taking in these tokens means to sort them all."""
        return len(tokens) - self._first_live > N_LIVE + self.n

    def catch_up(self, tokens: Sequence[int], prefix: npt.NDArray[np.uint64] | None = None) -> None:
        """Take in what the history has grown by."""
        assert len(tokens) >= self.n_tokens, "a history only grows between begin and end"
        if self.is_crowded(tokens):
            self._sort(tokens, prefix_hashes(tokens) if prefix is None else prefix)
            return
        if len(tokens) - self.n_tokens >= MANY:
            self._take_in_many(tokens)
            return
        n, weight, newest, older, value = self.n, self._weight, self._newest, self._older, self.hash
        for end in range(self.n_tokens, len(tokens)):
            value = (value * BASE + tokens[end] - (tokens[end - n] * weight if end >= n else 0)) & MASK
            if end + 1 >= n:
                older.append(newest.get(value, -1))
                newest[value] = end + 1 - n
        self.hash, self.n_tokens = value, len(tokens)

    def _take_in_many(self, tokens: Sequence[int]) -> None:
        n, newest, older = self.n, self._newest, self._older
        first = max(0, self.n_tokens - n + 1)  # place of the first n-gram that was not there
        prefix = prefix_hashes(tokens[first:])
        values = self._hashes(prefix).tolist()
        for place, value in enumerate(values, start=first):
            older.append(newest.get(value, -1))
            newest[value] = place
        self.hash, self.n_tokens = values[-1] if values else int(prefix[-1]), len(tokens)

    def _hashes(self, prefix: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Of every n-gram of tokens with these prefix hashes."""
        return prefix[self.n :] - prefix[: max(len(prefix) - self.n, 0)] * np.uint64(self._weight)

    def suffix_hash(self, tokens: Sequence[int], ahead: Sequence[int]) -> int:
        """Hash of the last n tokens of history and ahead; the index itself stays as it is."""
        value, n_old = self.hash, self.n_tokens - self.n
        for j, new in enumerate(ahead):
            old = span(tokens, ahead, n_old + j, n_old + j + 1)[0] if n_old + j >= 0 else 0
            value = (value * BASE + new - old * self._weight) & MASK
        return value

    def places(self, tokens: Sequence[int], ahead: Sequence[int] = ()) -> Iterator[int]:
        """Earlier places in the history where the last n tokens of history and ahead occur, newest first."""
        self.catch_up(tokens)
        last = len(tokens) + len(ahead) - self.n
        if last < 0:
            return
        wanted = span(tokens, ahead, last, last + self.n)
        for place in self.places_of(wanted, tokens, self.suffix_hash(tokens, ahead)):
            if place < last:
                yield place

    def places_of(self, wanted: Sequence[int], tokens: Sequence[int], value: int | None = None) -> Iterator[int]:
        """All places of these n tokens in the history as far as it is indexed, newest first."""
        wanted = list(wanted)
        for place in self._hashed_places(hash_of(wanted) if value is None else value):
            if list(tokens[place : place + self.n]) == wanted:
                yield place

    def ends_of(self, wanted: list[int], tokens: list[int], value: int, before: int, n_most: int) -> list[int]:
        """Where these n tokens end in the history, before this place: as `places_of`, at most so many and in one go."""
        n, ends = self.n, []
        for place in self._hashed_places(value):
            end = place + n
            if end < before and tokens[place:end] == wanted:
                ends.append(end)
                if len(ends) >= n_most:
                    break
        return ends

    def _hashed_places(self, value: int) -> Iterator[int]:
        place = self._newest.get(value, -1)
        while place >= 0:
            yield place
            place = self._older[place - self._first_live]
        high = value * MIX & MASK | self._place_mask
        at = bisect_right(self._sorted, high) - 1
        while at >= 0 and self._sorted[at] | self._place_mask == high:
            yield self._sorted[at] & self._place_mask
            at -= 1


def catch_up_all(indexes: Sequence[NgramIndex], tokens: Sequence[int]) -> None:
    """Several sizes over the same history."""
    prefix = prefix_hashes(tokens) if indexes[0].is_crowded(tokens) else None
    for index in indexes:
        index.catch_up(tokens, prefix)


def match_length(tokens: Sequence[int], ahead: Sequence[int], place: int, n: int, n_most: int) -> int:
    """How far the match of n tokens at `place` reaches back, counted up to n_most."""
    here, there = place - 1, len(tokens) + len(ahead) - n - 1
    while n < n_most and here >= 0:
        token = tokens[there] if there < len(tokens) else ahead[there - len(tokens)]
        if tokens[here] != token:
            break
        here, there, n = here - 1, there - 1, n + 1
    return n
