"""`ngram-simple`: find the newest earlier place where the last n tokens occur, propose the m tokens after it.

The match may overlap the end of the history but is never the end itself. Declines when the n tokens occurred
fewer than `min_hits` times before, or when fewer than n tokens (m, if that is less) follow the newest place.
Confidence grows with the length of the match, which a token that proves right makes longer by one.
Bound: one index entry for each token of a running request; nothing outlives a request.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from paceline.config import NgramParams
from paceline.drafters.base import Ask, Draft
from paceline.drafters.chances import USUAL
from paceline.drafters.ngram_index import NgramIndex, match_length, span

LONGEST_MATCH = 32


class NgramSimple:
    name = "ngram-simple"

    def __init__(self, params: NgramParams) -> None:
        self._params = params
        self._indexes: dict[int, NgramIndex] = {}

    def begin(self, seq: int, tokens: Sequence[int]) -> None:
        self._indexes[seq] = NgramIndex(self._params.size_n, tokens)

    def draft(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._draft(ask) for ask in asks]

    def _draft(self, ask: Ask) -> Draft:
        n, m = self._params.size_n, self._params.size_m
        if ask.seq not in self._indexes:
            self.begin(ask.seq, ask.tokens)
        places = self._indexes[ask.seq].places(ask.tokens, ask.ahead)
        newest = list(islice(places, self._params.min_hits))
        if len(newest) < self._params.min_hits:
            return Draft(source=self.name)
        start = newest[0] + n
        tokens = span(ask.tokens, ask.ahead, start, start + m)
        if len(tokens) < min(n, m):
            return Draft(source=self.name)
        length = match_length(ask.tokens, ask.ahead, newest[0], n, LONGEST_MATCH)
        del tokens[max(ask.n_max, 0) :]
        return Draft(tokens, self.name, USUAL.growing(length, len(tokens)))

    def accept(self, seq: int, draft: Draft, n_accepted: int) -> None:
        """Nothing to learn: the history says it all."""

    def end(self, seq: int, tokens: Sequence[int]) -> None:
        self._indexes.pop(seq, None)

    def close(self) -> None:
        self._indexes.clear()
