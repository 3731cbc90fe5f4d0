"""`ngram-mod`: one pool for all sequences and requests that maps a hash of n tokens to the token that followed.

A cell is chosen by the hash alone and the last write wins: no key is checked, so a draft may come from elsewhere by
accident, which the minimum length makes rare. Drafting rolls the window on over its own tokens until an empty cell or
n_max; fewer than n_min is no draft. A wrong token mends itself, since the true one is written over it. Five drafts in
a row of which less than half was right make that sequence, and no other, rest for 32 tokens. A pool over a quarter
full is cleared. Confidence: match length, which grows as the draft does. Bound: n_cells times 4 bytes (16 MiB), and
four numbers for each running sequence.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.config.drafters import NgramModParams
from paceline.drafters.base import Draft, Drafter, DraftRequest
from paceline.drafters.chances import USUAL
from paceline.drafters.ngram_index import BASE, MASK, hash_of, prefix_hashes, span

EMPTY = -1
N_POOR = 5
N_REST = 32
N_BULK = 64


class Pool:
    """The cells: which token followed the n tokens with this hash."""

    def __init__(self, n: int, n_cells: int) -> None:
        self.n = n
        self.n_cells = n_cells
        self.n_used = 0
        self.weight = pow(BASE, n, 2**64)
        self.cells = array("i", [EMPTY]) * n_cells
        self._view = np.frombuffer(self.cells, dtype=np.int32)

    def learn(self, tokens: Sequence[int], start: int) -> None:
        """Every token from `start` on follows the n before it."""
        if self.n_used > self.n_cells // 4:
            self.clear()
        start = max(start, self.n)
        if len(tokens) - start >= N_BULK:
            self._learn_many(tokens[start - self.n :])
        elif start < len(tokens):
            self._learn_few(tokens, start)

    def _learn_many(self, tokens: Sequence[int]) -> None:
        prefix = prefix_hashes(tokens)
        windows = prefix[self.n : -1] - prefix[: -self.n - 1] * np.uint64(self.weight)
        cells = (windows % np.uint64(self.n_cells)).astype(np.int64)
        # numpy leaves the order of repeated writes open: reversed, the first of each cell is the last write.
        cells, first = np.unique(cells[::-1], return_index=True)
        self.n_used += int(np.count_nonzero(self._view[cells] == EMPTY))
        self._view[cells] = np.array(tokens[self.n :], dtype=np.int32)[::-1][first]

    def _learn_few(self, tokens: Sequence[int], start: int) -> None:
        window = list(tokens[start - self.n :])
        value = hash_of(window[: self.n])
        for j in range(self.n, len(window)):
            cell = value % self.n_cells
            self.n_used += self.cells[cell] == EMPTY
            self.cells[cell] = window[j]
            value = (value * BASE + window[j] - window[j - self.n] * self.weight) & MASK

    def follow(self, window: list[int], n_max: int) -> list[int]:
        """What the pool believes comes after these n tokens."""
        window = list(window)
        value = hash_of(window)
        for j in range(n_max):
            token = self.cells[value % self.n_cells]
            if token == EMPTY:
                break
            value = (value * BASE + token - window[j] * self.weight) & MASK
            window.append(token)
        return window[self.n :]

    def clear(self) -> None:
        self._view.fill(EMPTY)
        self.n_used = 0


@dataclass(slots=True)
class Progress:
    """One sequence: how much of it the pool knows, how its drafts fared, until which length it rests."""

    n_learned: int = 0
    n_poor: int = 0
    n_tokens: int = 0
    rest_until: int = 0


class NgramMod(Drafter):
    name = "ngram-mod"

    def __init__(self, params: NgramModParams) -> None:
        self._params = params
        self._pool = Pool(params.n_match, params.n_cells)
        self._progress: dict[int, Progress] = {}

    def begin(self, seq: int, tokens: Sequence[int]) -> None:
        self._progress[seq] = Progress()
        self._catch_up(seq, tokens)

    def _catch_up(self, seq: int, tokens: Sequence[int]) -> Progress:
        progress = self._progress.setdefault(seq, Progress())
        self._pool.learn(tokens, progress.n_learned)
        progress.n_learned = progress.n_tokens = len(tokens)
        return progress

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> Draft:
        progress, n = self._catch_up(request.seq, request.tokens), self._params.n_match
        length = len(request.tokens) + len(request.ahead)
        if length < n or progress.n_tokens < progress.rest_until:
            return Draft(source=self.name)
        tokens = self._pool.follow(span(request.tokens, request.ahead, length - n, length), self._params.n_max)
        if len(tokens) < self._params.n_min:
            return Draft(source=self.name)
        del tokens[max(request.n_max, 0) :]
        return Draft(tokens, self.name, USUAL.growing(n, len(tokens)))

    def accept(self, seq: int, draft: Draft, n_accepted: int) -> None:
        progress = self._progress.get(seq)
        if progress is None:
            return
        progress.n_poor = progress.n_poor + 1 if 2 * n_accepted < len(draft) else 0
        if progress.n_poor >= N_POOR:
            progress.n_poor = 0
            progress.rest_until = progress.n_tokens + N_REST

    def end(self, seq: int, tokens: Sequence[int]) -> None:
        self._catch_up(seq, tokens)
        del self._progress[seq]

    def close(self) -> None:
        self._progress.clear()
