"""What drafters that read the target share: the rows of each text, and how much of them a head has taken in.

Rows come with every batch the target computes, whether the head drafts or rests. They are kept for a window of the
latest tokens and read when the head is asked next: only of tokens that have become the text, so there is nothing to
take back after a rejected draft but what the head has drafted itself.

Bound: a window of rows per sequence here, and of cells in the head's context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.drafters.base import Draft, Drafter, DraftRequest, Resources
from paceline.drafters.trace import RowTrace
from paceline.drafters.writing import Writing
from paceline.llama.head import HeadContext
from paceline.llama.hidden import Source
from paceline.llama.lib import Floats


@dataclass(slots=True)
class Extent:
    """Rows `start` to `end` of a text, the latter not among them."""

    start: int = 0
    end: int = 0


class HeadMemory:
    """Which rows of each text a head's context holds. The row of position P stands at P + `offset`; with a `lag` it was
    read together with the token after it, and is good only as long as that one is the same."""

    def __init__(self, context: HeadContext, *, offset: int = 0, lag: int = 0) -> None:
        self.context = context
        self.offset = offset
        self._lag = lag
        self._held = [Extent() for _ in range(context.n_seqs)]

    def end(self, seq: int) -> int:
        return self._held[seq].end

    def position(self, row: int) -> int:
        return row + self.offset

    def cut(self, seq: int, n: int) -> None:
        """Only the text's first n tokens are still the same."""
        held = self._held[seq]
        if held.end > n - self._lag:
            self._keep(seq, max(held.start, n - self._lag))

    def _keep(self, seq: int, end: int) -> None:
        held = self._held[seq]
        self.context.remove(seq, self.position(end))
        held.end = end
        if held.end <= held.start:
            self._restart(seq, 0)

    def _restart(self, seq: int, row: int) -> None:
        self.context.remove(seq, 0)
        self._held[seq] = Extent(row, row)

    def first_unread(self, seq: int, trace: RowTrace, n_most: int) -> int:
        """Where to go on reading; afresh, with this many rows, where some are gone or there are more to read."""
        held = self._held[seq]
        if held.start == held.end or held.end < trace.start or trace.end - held.end > n_most:
            self._restart(seq, max(trace.start, trace.end - n_most))
        return self._held[seq].end

    def unread_last(self, seq: int, row: int) -> None:
        """This row is to be read again: nothing else says what comes after it."""
        self._keep(seq, row)
        if self._held[seq].end != row:
            self._restart(seq, row)

    def have_read(self, seq: int, end: int, n_most: int) -> None:
        """All rows up to `end` are read. What the head wrote after them goes, and what is too old for the window."""
        held = self._held[seq]
        held.end = end
        self.context.remove(seq, self.position(end))
        if end - held.start > n_most:
            self.context.remove(seq, self.position(held.start), self.position(end - n_most))
            held.start = end - n_most


class HeadDrafter(Drafter):
    """A drafter with heads; `source` says which of the target's rows it reads."""

    reads_target = True

    def __init__(self, memories: Sequence[HeadMemory], source: Source, resources: Resources) -> None:
        computing, params = resources.computing(self.name), resources.settings.draft_model
        self.memories = memories
        self.source = source
        self.costs = computing.costs
        self._computing = computing
        self.params = params
        context = memories[0].context
        self.window = computing.window
        self._n_worth = computing.n_worth or (lambda n_text, n_left: self.window)
        self._traces = [RowTrace(self.window) for _ in range(context.n_seqs)]
        n_target = resources.target.vocab.n_tokens
        self._writing = Writing(params, context.model.vocab.eog, n_target, words=context.words)

    def begin(self, seq: int, tokens: Sequence[int]) -> None:
        self._cut(seq, self._traces[seq].n_common(tokens))

    def observe(self, seq: int, start: int, text: Sequence[int], rows: Floats) -> None:
        if start < self._traces[seq].end:
            self._cut(seq, start)
        self._traces[seq].follow(start, text, rows)

    def _cut(self, seq: int, n: int) -> None:
        self._traces[seq].cut(n)
        for memory in self.memories:
            memory.cut(seq, n)

    def is_ready(self, seq: int, tokens: Sequence[int]) -> bool:
        return self._traces[seq].ends_before_last(tokens)

    def n_rows(self, n_text: int, n_left: int) -> int:
        return max(1, min(self.window, self._n_worth(n_text, n_left)))

    def _n_read(self, request: DraftRequest) -> int:
        """What was had for a prompt is read; of what came since no more than a prompt of its length would give."""
        return self.n_rows(len(request.tokens), request.n_left)

    def accept(self, seq: int, draft: Draft, n_accepted: int) -> None:
        """Nothing to do: the rows of what was accepted come by themselves."""

    def end(self, seq: int, tokens: Sequence[int]) -> None:
        """Rows and cells stay, for a request that goes on from here."""

    def idle_place(self) -> tuple[int, int]:
        context = self.memories[0].context
        seq = min(range(len(self._traces)), key=context.next_position)
        return seq, context.next_position(seq)

    def close(self) -> None:
        for memory in self.memories:
            memory.context.close()
