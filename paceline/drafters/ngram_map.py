"""`ngram-map-k` and `ngram-map-k4v`: look-ups of n tokens that remember how far their drafts were right.

map-k proposes the m tokens after the newest earlier place of the last n tokens (the key). map-k4v weighs the
continuations (the m tokens that follow a place in full) of the key's newest 64 places: of the four newest different
ones, the most frequent is proposed if there is no other or it is seen at least twice as often as the others
together. Both need `min_hits` earlier places of the key. A draft is no longer than the limit of its key (map-k) or
continuation (map-k4v), m at first: a wrong token cuts the limit to what was right (at least 1, so that nothing is
silent for good), a draft that is right to its end doubles it. Confidence: match length, for map-k4v times the share
of the continuations that agree. Bound: an index entry and at most one limit for each token of a running request;
nothing outlives a request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from paceline.config.drafters import NgramParams
from paceline.drafters.base import Draft, Drafter, DraftRequest
from paceline.drafters.chances import USUAL
from paceline.drafters.ngram_index import NgramIndex, match_length, span

LONGEST_MATCH = 32
N_VALUES = 4

Key = tuple[int, int]


class NgramMemory:
    """One request: where its n-grams are, how long drafts from each key may be, which key drafted last."""

    __slots__ = ("index", "last_key", "limits")

    def __init__(self, index: NgramIndex) -> None:
        self.index = index
        self.limits: dict[Key, int] = {}
        self.last_key: Key | None = None


class NgramMapK(Drafter):
    name = "ngram-map-k"
    n_places = 1

    def __init__(self, params: NgramParams) -> None:
        self._params = params
        self._memories: dict[int, NgramMemory] = {}

    def begin(self, seq: int, tokens: Sequence[int]) -> None:
        self._memories[seq] = NgramMemory(NgramIndex(self._params.size_n, tokens))

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> Draft:
        if request.seq not in self._memories:
            self.begin(request.seq, request.tokens)
        memory, n = self._memories[request.seq], self._params.size_n
        places = list(
            islice(memory.index.places(request.tokens, request.ahead), max(self.n_places, self._params.min_hits))
        )
        if len(places) < self._params.min_hits:
            return Draft(source=self.name)
        tokens, shares = self._follow(request, places[: self.n_places])
        memory.last_key = (memory.index.suffix_hash(request.tokens, request.ahead), self._value_of(tokens))
        n_draft = min(memory.limits.get(memory.last_key, self._params.size_m), max(request.n_max, 0), len(tokens))
        length = match_length(request.tokens, request.ahead, places[0], n, LONGEST_MATCH)
        chances = USUAL.growing(length, n_draft)
        return Draft(tokens[:n_draft], self.name, [c * s for c, s in zip(chances, shares, strict=False)])

    def _follow(self, request: DraftRequest, places: list[int]) -> tuple[list[int], list[float]]:
        """The tokens to propose and how undisputed each is."""
        start = places[0] + self._params.size_n
        tokens = span(request.tokens, request.ahead, start, start + self._params.size_m)
        return tokens, [1.0] * len(tokens)

    def _value_of(self, tokens: list[int]) -> int:
        """What tells apart the limits of one key."""
        return 0

    def accept(self, seq: int, draft: Draft, n_accepted: int) -> None:
        memory = self._memories.get(seq)
        if memory is None or memory.last_key is None:
            return
        m = self._params.size_m
        longer = min(max(memory.limits.get(memory.last_key, m), 2 * n_accepted), m)
        memory.limits[memory.last_key] = longer if n_accepted == len(draft) else max(n_accepted, 1)

    def end(self, seq: int, tokens: Sequence[int]) -> None:
        self._memories.pop(seq, None)

    def close(self) -> None:
        self._memories.clear()


class NgramMapK4V(NgramMapK):
    name = "ngram-map-k4v"
    n_places = 64

    def _follow(self, request: DraftRequest, places: list[int]) -> tuple[list[int], list[float]]:
        n, m = self._params.size_n, self._params.size_m
        full = [place + n for place in places if place + n + m <= len(request.tokens)]
        values = Counter(tuple(request.tokens[start : start + m]) for start in full)
        # A Counter keeps first-seen order, which is newest first here; max() takes the first of equals.
        kept = dict(list(values.items())[:N_VALUES])
        if not kept:
            return [], []
        winner = max(kept, key=kept.__getitem__)
        if len(kept) > 1 and kept[winner] < 2 * (sum(kept.values()) - kept[winner]):
            return [], []
        return list(winner), agreement(winner, kept)

    def _value_of(self, tokens: list[int]) -> int:
        return hash(tuple(tokens))


def agreement(winner: tuple[int, ...], values: dict[tuple[int, ...], int]) -> list[float]:
    """Of the continuations that agree with the winner so far, the share that also agrees on the next token."""
    shares = []
    agreeing = values
    for j, token in enumerate(winner):
        still = {value: count for value, count in agreeing.items() if value[j] == token}
        shares.append(sum(still.values()) / sum(agreeing.values()))
        agreeing = still
    return shares
