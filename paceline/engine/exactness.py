"""Which batches give the same bits on this context. Knows tokens and rows of logits; nothing of requests or files.

Kernels are chosen by the size of a batch, and each rounds in its own way. No rule about that holds on every device and
for every kind of weights, so the very context is tried: some tokens are computed in many ways, and the logits compared
bit for bit.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from time import perf_counter
from typing import Protocol

import numpy as np

from paceline.llama.context import Batch
from paceline.llama.lib import Floats
from paceline.llama.saved import Bytes

BORDER = 256  # libllama looks at its cells by so many, and attention is divided otherwise when it looks at more
N_WALK = 24  # tokens computed in each way, where some batches end before the border and some behind it
N_SHORT = 10  # where reading up to the border would take too long
READING = 15.0  # seconds that may go into reading up to it
SECONDS = 60.0  # for one layout; then the rest of the ways is left out
N_SURE = 4  # ways that are never left out
N_TIMES = 5
TIMING = 1.0  # second that timing may take, or one step

Way = Sequence[tuple[int, int]]
"""How tokens are computed, again and again: so many that are kept, then so many that are rejected."""


class Triable(Protocol):
    """What of a context trying needs."""

    n_batch: int
    n_ubatch: int
    n_ctx_seq: int
    n_seqs: int
    n_vocab: int
    n_rollback: int | None

    def new_batch(self) -> Batch: ...
    def decode(self, batch: Batch) -> Floats: ...
    def remove(self, seq: int, start: int, end: int = -1) -> bool: ...
    def get_state(self, seq: int) -> Bytes: ...
    def set_state(self, seq: int, state: Bytes) -> None: ...
    def clear(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Layout:
    """Batches of one slot each: padded to `least` tokens, never more than `most`.

    With a `border` no draft goes on past a token whose batch, all of the same size, would end at a multiple of it; so
    every token is computed in view of the same number of cells, wherever in a batch it stands.
    """

    least: int = 2
    most: int = 62
    border: int = 0

    def __post_init__(self) -> None:
        assert 1 <= self.least <= self.most
        assert self.least == self.most <= self.border or not self.border

    def __str__(self) -> str:
        n = f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"
        cut = f", cut at every {self.border}" if self.border else ""
        return f"batches of {n} token{'s' * (self.most > 1)}{cut}"

    def padded(self, n: int) -> int:
        return max(n, self.least)

    def n_drafts(self, position: int) -> int:
        """The longest draft after the token at this position."""
        n = self.most - 1
        return min(n, (-self.most - position) % self.border) if self.border else n

    def room(self, n_ctx: int) -> int:
        """Tokens a text may have, where a slot has so many cells: the last but one is computed too, and padded."""
        return n_ctx - max(0, self.least - 2)

    def within(self, context: Triable) -> Layout | None:
        """As far as the context takes such batches in one piece, and takes back all but their first token; None where
        it takes none."""
        most = min(self.most, context.n_batch, context.n_ubatch)
        most = most if context.n_rollback is None else min(most, 1 + context.n_rollback)
        fits = self.least <= most and self.room(context.n_ctx_seq) > self.least
        return replace(self, most=most) if fits else None


ALONE = Layout(1, 1)
"""A memory that cannot forget single tokens takes neither pads nor drafts."""

CANDIDATES = (
    Layout(2, 62),
    Layout(8, 62),
    *(Layout(n, n, border) for n in (8, 16, 4, 32) for border in (0, BORDER)),
)
"""In the order of preference, which must not depend on a clock: the next start has to choose the same. One fixed size
is for accelerators, where eight tokens cost little more than four and leave room for drafts."""


def find(context: Triable, candidates: Iterable[Layout] = CANDIDATES) -> Layout | None:
    """The first layout by which this context computes the same bits whatever is drafted. Leaves the context empty."""
    trial = Trial(context)
    fitting = (layout.within(context) for layout in candidates)
    return next((layout for layout in fitting if layout and trial.passes(layout)), None)


def step_seconds(context: Triable, n: int) -> float:
    """A batch of n tokens on an empty sequence, undisturbed."""
    batch, times = context.new_batch(), [0.0]
    while len(times) <= N_TIMES and sum(times) < TIMING:
        batch.clear()
        batch.add(0, [1] * n, 0, n)
        start = perf_counter()
        context.decode(batch)[0].argmax()
        times.append(perf_counter() - start)
        context.remove(0, 0)
    return min(times[1:])


def ways(layout: Layout) -> list[Way]:
    """What tells most comes first: the largest batch, sizes in disorder, drafts rejected."""
    most = layout.most
    small = range(2, min(18, most + 1))
    large = range(min(18, most), most + 1, 8)
    return [
        [(most, most)],
        [(1, 0), (3, 2), (2, 5)],
        [(1, n - 1) for n in small],
        [(3, 0)],
        [(3, n - 3) for n in large if n > 3],
        *([(n, 0)] for n in (5, 2, 7, 4, 8)),
        [(1, 3), (9, 1)],
    ]


class Trial:
    """Random text, read in each sequence up to where all ways begin."""

    def __init__(self, context: Triable) -> None:
        self.context = context
        self._batch = context.new_batch()
        n_read = min(32, context.n_ubatch, context.n_batch, context.n_ctx_seq)
        self._far = BORDER * step_seconds(context, n_read) / n_read > READING
        self._n = max(1, min(N_SHORT if self._far else N_WALK, context.n_ctx_seq // 4))
        self._start = 0
        self._read_so_far: dict[int, Bytes] = {}  # by sequence, where it cannot be cut back to that
        self._tokens = random.Random(1).choices(range(context.n_vocab), k=BORDER + self._n)

    def _place(self, layout: Layout) -> int:
        """Where to begin: so that batches reach the border soon, if it is there and can be reached in time."""
        start = self._n if self._far else BORDER - layout.least - self._n // 3
        return max(1, min(start, self.context.n_ctx_seq - self._n - layout.least))

    def passes(self, layout: Layout) -> bool:
        """Whether every way gives the bits of one token at a time, in the first sequence and in the last."""
        until = perf_counter() + SECONDS
        seqs = sorted({0, self.context.n_seqs - 1})
        self.context.clear()
        self._start = self._place(layout)
        try:
            for seq in seqs:
                self._read(seq)
            alone = [row.copy() for row in self._rows(layout, 0, [(1, 0)])]
            tried = [(seqs[-1], ways(layout)[1]), *((0, way) for way in ways(layout))]
            return all(
                self._same(alone, self._rows(layout, seq, way))
                for i, (seq, way) in enumerate(tried)
                if i < N_SURE or perf_counter() < until
            )
        finally:
            self.context.clear()

    @staticmethod
    def _same(expected: Sequence[Floats], rows: Iterator[Floats]) -> bool:
        """To the last bit: NaN is itself, and zero has a sign."""
        return all(np.array_equal(a.view(np.int32), b.view(np.int32)) for a, b in zip(expected, rows, strict=True))

    def _read(self, seq: int) -> None:
        size = min(self.context.n_ubatch, self.context.n_batch)
        for at in range(0, self._start, size):
            self._decode(seq, self._tokens[at : min(at + size, self._start)], at, 0)
        if self.context.n_rollback is not None:
            self._read_so_far[seq] = self.context.get_state(seq)

    def _rows(self, layout: Layout, seq: int, way: Way) -> Iterator[Floats]:
        """The logits after each token, computed this way."""
        if seq in self._read_so_far:
            self.context.set_state(seq, self._read_so_far[seq])
        else:
            self.context.remove(seq, self._start)
        at, end = self._start, self._start + self._n
        groups = cycle(way)
        while at < end:
            n_kept, n_rejected = next(groups)
            kept = self._tokens[at : min(at + n_kept, at + 1 + layout.n_drafts(at), end)]
            room = min(layout.most, self.context.n_ctx_seq - at) - len(kept)
            rejected = [(token + 1) % self.context.n_vocab for token in kept[:1]] * max(0, min(n_rejected, room))
            batch = kept + rejected
            batch += batch[-1:] * (layout.padded(len(batch)) - len(batch))
            yield from self._decode(seq, batch, at, len(batch))[: len(kept)]
            at += len(kept)
            self.context.remove(seq, at)

    def _decode(self, seq: int, tokens: Sequence[int], at: int, n_outputs: int) -> Floats:
        self._batch.clear()
        self._batch.add(seq, tokens, at, n_outputs)
        return self.context.decode(self._batch)
