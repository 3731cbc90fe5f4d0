"""`draft-dflash`: a head that writes a whole block at once.

Rows of the target's go into its memory; then one call computes the last token and as many masks as there may be tokens
after it, each of which sees all of the others. So a draft costs the same whatever its length. A head with a selector
gives candidates for every place, and how well each follows each of the place before.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from paceline.drafters.base import Draft, DraftRequest, Resources
from paceline.drafters.guess import choose
from paceline.drafters.reader import HeadDrafter, HeadMemory
from paceline.drafters.writing import place
from paceline.llama.hidden import calls, metadata, target_layers
from paceline.llama.lib import Floats
from paceline.llama.model import Model

USUAL_BLOCK = 16


class DFlash(HeadDrafter):
    """`first` is the block's first place that says anything: not the last token's own."""

    name = "draft-dflash"
    first = 1

    def __init__(self, resources: Resources) -> None:
        context = resources.computing(self.name).heads[0]
        source = target_layers(context.model, resources.target)
        super().__init__([HeadMemory(context)], source, resources)
        self._context = context
        self.block = min(self.params.n_max + self.first, n_block(context.model))
        self._mask = context.model.vocab.mask
        self._top_k = int(calls().selector(context.model.handle))
        self._injecting = context.row_batch(len(source) * resources.target.n_embd)
        self._batch = context.new_batch()

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """After what another drafter has proposed there are no rows: nothing is said there."""
        drafts = [Draft(source=self.name) for _ in requests]
        ready = [
            (r, d) for r, d in zip(requests, drafts, strict=True) if not r.ahead and self.is_ready(r.seq, r.tokens)
        ]
        self._take_in([request for request, _ in ready])
        n = max(1, min(self._context.n_ubatch, self._batch.capacity) // self.block)
        for first in range(0, len(ready), n):
            self._write(ready[first : first + n])
        return [self._writing.long_enough(draft) for draft in drafts]

    # -- reading

    def _take_in(self, requests: list[DraftRequest]) -> None:
        """All rows that are not in the head's memory, of all sequences."""
        memory, batch = self.memories[0], self._injecting
        batch.clear()
        for request in requests:
            trace = self._traces[request.seq]
            first = memory.first_unread(request.seq, trace, self._n_read(request))
            while first < trace.end:
                if batch.n_tokens == batch.capacity:
                    self._inject()
                last = min(trace.end, first + batch.capacity - batch.n_tokens)
                batch.add_rows(request.seq, [0] * (last - first), memory.position(first), 0, trace.rows(first, last))
                first = last
        if batch.n_tokens:
            self._inject()

    def _inject(self) -> None:
        self._context.inject(self._injecting)
        self._injecting.clear()

    # -- writing

    def _write(self, ready: list[tuple[DraftRequest, Draft]]) -> None:
        start, batch, memory = perf_counter(), self._batch, self.memories[0]
        batch.clear()
        for request, _ in ready:
            block = [request.tokens[-1], *[self._mask] * (self.block - 1)]
            batch.add(request.seq, block, len(request.tokens) - 1, 0 if self._top_k else self.block)
        logits = self._context.decode(batch)
        for i, (request, draft) in enumerate(ready):
            self._fill(request, draft, logits, i * self.block)
            memory.have_read(request.seq, self._traces[request.seq].end, self.window)
        self._computing.costs.observe(batch.n_tokens, perf_counter() - start)

    def _fill(self, request: DraftRequest, draft: Draft, logits: Floats, at: int) -> None:
        limit = min(request.n_max, self.params.n_max)
        if self._top_k:
            lattice = self._context.own_rows(at + self.block)[at + self.first :]
            self._walk(request, draft, lattice, limit)
            return
        for row in logits[at + self.first : at + self.block]:
            if not self._writing.extend(request, draft, row, limit):
                break

    def _walk(self, request: DraftRequest, draft: Draft, lattice: Floats, limit: int) -> None:
        """A row has the candidates, then how well they follow each one of the row before."""
        k, before = self._top_k, 0
        for row in lattice:
            scores = row[k * (1 + before) : k * (2 + before)]
            before, confidence = choose(row[:k], scores, request.noise, place(request, draft))
            if not self._writing.take(request, draft, int(row[before]), confidence, limit):
                break


def n_block(model: Model) -> int:
    """How long a block the head was trained for."""
    found = metadata(model, "dflash.block_size")
    return int(found) if found else USUAL_BLOCK
