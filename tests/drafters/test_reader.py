"""What a head's memory holds, against a context that knows which pair each cell was computed from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.drafters.reader import HeadMemory
from paceline.drafters.trace import RowTrace
from paceline.llama.head import HeadContext

Pair = tuple[int, int | None]
Action = tuple[str, int, int]
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["compute", "compute", "draft", "draft", "rewrite"]), st.integers(0, 40), st.integers(1, 9)
    )
)


class Cells:
    """A head's context as its memory sees it."""

    n_seqs = 2

    def __init__(self) -> None:
        self.cells: list[dict[int, Pair]] = [{} for _ in range(self.n_seqs)]

    def remove(self, seq: int, start: int, end: int = -1) -> bool:
        held = self.cells[seq]
        for position in [at for at in held if at >= start and (end < 0 or at < end)]:
            del held[position]
        return True

    def put(self, seq: int, position: int, pair: Pair) -> None:
        """libllama wants a sequence's positions to go on one by one."""
        held = self.cells[seq]
        assert not held or position == max(held) + 1
        held[position] = pair


class Reading:
    """One text: the target computes it, the head reads its rows and writes a few of its own. The row of a token is told
    by all tokens up to it."""

    def __init__(self, seq: int, memory: HeadMemory, cells: Cells, window: int, lag: int) -> None:
        self.seq, self.memory, self.cells, self.window, self.lag = seq, memory, cells, window, lag
        self.trace = RowTrace(window)
        self.text = [1]
        self.fresh = self._numbers()

    def _numbers(self) -> Iterator[int]:
        yield from range(1000 * (self.seq + 1), 10**9)

    def compute(self, n: int) -> None:
        """Tokens come, of which the last is not computed."""
        start = len(self.text) - 1
        self.text += [next(self.fresh) for _ in range(n)]
        rows = np.array([[self._row(at)] for at in range(start, start + n)], np.float32)
        self.trace.follow(start, self.text, rows)

    def _row(self, at: int) -> int:
        return hash(tuple(self.text[: at + 1])) % 2**20

    def rewrite(self, n: int) -> None:
        """Another text comes that has all but n tokens in common."""
        n = max(0, len(self.text) - n)
        self.text = [*self.text[:n], next(self.fresh), next(self.fresh)]
        n = self.trace.n_common(self.text)
        self.trace.cut(n)
        self.memory.cut(self.seq, n)
        start = min(n, len(self.text) - 1)
        rows = np.array([[self._row(at)] for at in range(start, len(self.text) - 1)], np.float32)
        if len(rows):
            self.trace.follow(start, self.text, rows)

    def draft(self, n_own: int, n_most: int) -> None:
        if not self.trace.ends_before_last(self.text):
            return
        end = self.trace.end
        first = self.memory.first_unread(self.seq, self.trace, min(n_most, self.window))
        if first == end:
            first = end - 1
            self.memory.unread_last(self.seq, first)
        for at in range(first, end):
            row = int(self.trace.rows(at, at + 1)[0, 0])
            self.cells.put(self.seq, self.memory.position(at), self._pair(row, at))
        for i in range(n_own):
            self.cells.put(self.seq, self.memory.position(end + i), (-1, None))
        self.memory.have_read(self.seq, end, self.window)

    def _pair(self, row: int, at: int) -> Pair:
        return row, self.text[at + 1] if self.lag else None

    def check(self) -> None:
        """As far as it was read, everything is of the text as it is now, without a gap, and no more than the window."""
        held, end = self.cells.cells[self.seq], self.memory.end(self.seq)
        positions = range(self.memory.position(end) - len(held), self.memory.position(end))
        assert sorted(held) == list(positions)
        assert len(held) <= self.window
        for position, pair in held.items():
            at = position - self.memory.offset
            assert pair == self._pair(self._row(at), at)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    window=st.sampled_from([1, 4, 16]),
    offset=st.integers(0, 1),
    lag=st.integers(0, 1),
    actions=st.lists(st.tuples(st.integers(0, 1), ACTIONS), max_size=4),
)
def test_a_memory_holds_its_text_and_nothing_else(
    window: int, offset: int, lag: int, actions: list[tuple[int, list[Action]]]
) -> None:
    cells = Cells()
    memory = HeadMemory(cast(HeadContext, cells), offset=offset, lag=lag)
    readings = [Reading(seq, memory, cells, window, lag) for seq in range(cells.n_seqs)]
    for seq, steps in actions:
        for action, where, n in steps:
            reading = readings[seq]
            if action == "compute":
                reading.compute(n)
            elif action == "draft":
                reading.draft(n - 1, 1 + where)
            else:
                reading.rewrite(where)
            for each in readings:
                each.check()
