"""Drafters that read the target, and its rows for them: which batches hand rows out, and which of them are kept.

Rows take time, on a GPU as much as a twentieth of a step: a long prompt gives those near its end only, and none are
given while nobody is expected to draft from them. Knows slots' work, nothing of heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from paceline.drafters.base import Drafter
from paceline.engine.scheduler import Work
from paceline.engine.slot import Slot
from paceline.llama.hidden import Source
from paceline.llama.lib import Floats

LOOK_EVERY = 32  # batches: whether a drafter is expected to draft changes slowly


class TargetRows(Protocol):
    """The rows of the target's last batch, for drafters that read them."""

    is_free: bool

    def wake(self, *, up: bool) -> None: ...
    def switch(self, *, on: bool) -> None: ...
    def covers(self, source: Source) -> bool: ...
    def rows(self, source: Source, first: int, last: int) -> Floats: ...


class Readers:
    """`rows` is None where nobody reads any."""

    def __init__(self, drafters: Sequence[Drafter], rows: TargetRows | None) -> None:
        self._rows = rows
        self._readers = [drafter for drafter in drafters if drafter.reads_target] if rows else []
        self._n_batches = 0
        self._awake: list[Drafter] = []

    def prepare(self, works: Sequence[Work], expected: Callable[[str], bool]) -> None:
        """Before a batch: are its rows worth having? Not where they could change logits that must be the same with and
        without."""
        rows = self._rows
        if not rows or not self._readers:
            return
        if self._n_batches % LOOK_EVERY == 0:
            self._awake = [reader for reader in self._readers if expected(reader.name)]
            rows.wake(up=bool(self._awake))
        self._n_batches += 1
        harmless = rows.is_free or all(work.n_outputs in (0, len(work.tokens)) for work in works)
        near = any(n_before_end(work) < n_wanted(reader, work.slot) for reader in self._awake for work in works)
        rows.switch(on=harmless and near)

    def who_hears(self, work: Work) -> list[Drafter]:
        """Of what the target has computed. As much of it as is still in the target's memory is the text."""
        if not self._rows or work.slot.n_computed <= work.start:
            return []
        return [reader for reader in self._awake if self._rows.covers(reader.source)]

    def tell(self, reader: Drafter, work: Work) -> None:
        slot, end = work.slot, work.slot.n_computed
        start = max(work.start, len(slot.tokens) - n_wanted(reader, slot))
        if self._rows and start < end:
            first = work.first - work.start
            reader.observe(slot.seq, start, slot.tokens, self._rows.rows(reader.source, first + start, first + end))


def n_before_end(work: Work) -> int:
    """Tokens of the text that come after this work."""
    return len(work.slot.tokens) - work.slot.n_computed - len(work.tokens)


def n_wanted(reader: Drafter, slot: Slot) -> int:
    """Rows of the text's end that are worth having."""
    return reader.n_rows(len(slot.tokens), slot.n_left)
