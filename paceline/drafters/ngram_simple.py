"""`ngram-simple`: find the newest earlier place where the last n tokens occur, propose the m tokens after it.

The match may overlap the end of the history but is never the end itself. Declines when the n tokens occurred
fewer than `min_hits` times before, or when fewer than n tokens (m, if that is less) follow the newest place.
Confidence grows with the length of the match, which a token that proves right makes longer by one.
Bound: one index entry for each token of a running request; nothing outlives a request.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from paceline.config.drafters import NgramParams
from paceline.drafters.base import Draft, Drafter, DraftRequest
from paceline.drafters.chances import USUAL
from paceline.drafters.ngram_index import NgramIndex, match_length, span

LONGEST_MATCH = 32


class NgramSimple(Drafter):
    name = "ngram-simple"

    def __init__(self, params: NgramParams) -> None:
        self._params = params
        self._indexes: dict[int, NgramIndex] = {}

    def begin(self, seq: int, tokens: Sequence[int]) -> None:
        self._indexes[seq] = NgramIndex(self._params.size_n, tokens)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> Draft:
        n, m = self._params.size_n, self._params.size_m
        if request.seq not in self._indexes:
            self.begin(request.seq, request.tokens)
        places = self._indexes[request.seq].places(request.tokens, request.ahead)
        newest = list(islice(places, self._params.min_hits))
        if len(newest) < self._params.min_hits:
            return Draft(source=self.name)
        start = newest[0] + n
        tokens = span(request.tokens, request.ahead, start, start + m)
        if len(tokens) < min(n, m):
            return Draft(source=self.name)
        length = match_length(request.tokens, request.ahead, newest[0], n, LONGEST_MATCH)
        del tokens[max(request.n_max, 0) :]
        return Draft(tokens, self.name, USUAL.growing(length, len(tokens)))

    def accept(self, seq: int, draft: Draft, n_accepted: int) -> None:
        """Nothing to learn: the history says it all."""

    def end(self, seq: int, tokens: Sequence[int]) -> None:
        self._indexes.pop(seq, None)

    def close(self) -> None:
        self._indexes.clear()
