"""Heads that go on token by token: each step computes a token together with the row of the one before it.

What the target has computed comes with its own rows; after that the head goes on with the rows it computes itself. All
sequences are computed in one call. Heads that are chained have a memory each and take turns: the first drafts the first
token, the second the next one, and no more tokens are drafted than there are heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count
from time import perf_counter

from paceline.drafters.base import Draft, DraftRequest, Resources
from paceline.drafters.reader import HeadDrafter, HeadMemory
from paceline.llama.hidden import Source
from paceline.llama.lib import Floats


@dataclass(slots=True)
class Chain:
    """One request's draft as it grows: `tokens` are those ahead of it and its own, `rows` what the head computed."""

    request: DraftRequest
    draft: Draft
    limit: int
    end: int  # of the rows the target has given
    rows: list[Floats] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        return [*self.request.ahead, *self.draft.tokens]


@dataclass(slots=True)
class Feed:
    """Pairs of one sequence, in order; the first stands at `position`."""

    seq: int
    position: int
    tokens: list[int]
    rows: Sequence[Floats] | Floats

    def take(self, n: int) -> Feed:
        """The first n; the rest stays."""
        first = Feed(self.seq, self.position, self.tokens[:n], self.rows[:n])
        self.position, self.tokens, self.rows = self.position + n, self.tokens[n:], self.rows[n:]
        return first


class PairHead(HeadDrafter):
    """`_read` makes the target's rows into those the head computes with. With its last words at most `most_read` rows
    of a text are read: more are read before, without logits, and all where a head is spared logits for those."""

    most_read = 8

    def __init__(self, memories: Sequence[HeadMemory], source: Source, resources: Resources) -> None:
        super().__init__(memories, source, resources)
        self._batches = [memory.context.pair_batch() for memory in memories]
        self._chained = len(memories) > 1

    def _read(self, rows: Floats) -> Floats:
        return rows

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        drafts = [Draft(source=self.name) for _ in requests]
        chains = [self._chain(request, draft) for request, draft in zip(requests, drafts, strict=True)]
        alive = started = [chain for chain in chains if chain]
        for depth in count():
            if not alive:
                break
            feeds = [self._feed(chain, depth) for chain in alive]
            logits, own = self._compute(depth if self._chained else 0, feeds)
            for chain, row in zip(alive, own, strict=True):
                chain.rows.append(row)
            alive = [chain for chain, row in zip(alive, logits, strict=True) if self._goes_on(chain, row)]
        for chain in started:
            self._settle(chain)
        return [self._writing.long_enough(draft) for draft in drafts]

    def _chain(self, request: DraftRequest, draft: Draft) -> Chain | None:
        """None where rows are missing, or no token is wanted."""
        limit = min(request.n_max, self.params.n_max)
        if self._chained:
            limit = min(limit, len(self.memories) - len(request.ahead))
        if limit <= 0 or not self.is_ready(request.seq, request.tokens):
            return None
        return Chain(request, draft, limit, self._traces[request.seq].end)

    def _goes_on(self, chain: Chain, row: Floats) -> bool:
        """Tokens that another drafter has proposed are taken as they are, then the head's own."""
        if len(chain.rows) <= len(chain.request.ahead):
            return True
        return self._writing.extend(chain.request, chain.draft, row, chain.limit)

    def _feed(self, chain: Chain, depth: int) -> Feed:
        """What the head that is up next has not seen: rows of the target's, then its own."""
        seq, end = chain.request.seq, chain.end
        if depth and not self._chained:
            return Feed(seq, self.memories[0].position(end + depth - 1), [chain.tokens[depth - 1]], chain.rows[-1:])
        memory, trace = self.memories[depth], self._traces[seq]
        first = memory.first_unread(seq, trace, self._n_read(chain.request))
        if first == end and not depth:
            first = end - 1
            memory.unread_last(seq, first)
        tokens = [*chain.request.tokens[first + 1 : end + 1], *chain.tokens[:depth]]
        rows = [*self._read(trace.rows(first, end)), *chain.rows] if first < end else chain.rows
        return Feed(seq, memory.position(first), tokens, rows)

    def _compute(self, which: int, feeds: list[Feed]) -> tuple[Floats, Floats]:
        """Logits and own row after the last pair of each sequence."""
        context = self.memories[which].context
        most = 1 if context.reads_apart else self.most_read
        room = max(1, min(most, context.n_batch // len(feeds)))
        while too_long := [feed for feed in feeds if len(feed.tokens) > room]:
            at_once = max(1, context.n_batch // len(too_long))
            ahead = [feed.take(min(len(feed.tokens) - 1, at_once)) for feed in too_long]
            self._decode(which, ahead, logits=False)
        last = [n - 1 for n in accumulate(len(feed.tokens) for feed in feeds)]
        start = perf_counter()
        logits = self._decode(which, feeds, logits=True)
        self._computing.costs.observe(last[-1] + 1, perf_counter() - start)
        return logits[last], context.own_rows(last[-1] + 1)[last]

    def _decode(self, which: int, feeds: list[Feed], *, logits: bool) -> Floats:
        """Logits are asked for all pairs: some heads answer with the first rows, whichever were asked for."""
        batch = self._batches[which]
        batch.clear()
        for feed in feeds:
            batch.add_rows(feed.seq, feed.tokens, feed.position, len(feed.tokens) if logits else 0, feed.rows)
        return self.memories[which].context.decode(batch)

    def _settle(self, chain: Chain) -> None:
        """What the target gave stays in the heads' memories, what they wrote themselves goes."""
        for memory in self.memories[: len(chain.rows)]:
            memory.have_read(chain.request.seq, chain.end, self.window)
