"""The target's memory: which slot keeps which prefix, rolling back, making room. Knows slots, not requests' wishes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Protocol

from paceline.engine.slot import Slot


class Cells(Protocol):
    """What of a context the memory needs."""

    n_ctx: int

    def remove(self, seq: int, start: int, end: int = -1) -> bool: ...


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens are the same. Halving keeps the comparing in C: it is called on whole prompts."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class Memory:
    """Cells of all slots. `shared` says whether they come out of one pool or each slot has its own range.

    A prefix is reused up to a multiple of `border` only. A slot is chosen for its prefix when that is at least
    `similarity` of the prompt; with none asked for, nobody looks.
    """

    def __init__(self, cells: Cells, slots: list[Slot], *, shared: bool, border: int, similarity: float) -> None:
        self.cells = cells
        self.slots = slots
        self.shared = shared
        self.border = border
        self.similarity = similarity
        self._clock = count(1)

    def choose(self, prompt: list[int], wanted: int | None) -> Slot | None:
        """The idle slot that remembers most of this prompt, else the one unused for longest."""
        idle = [slot for slot in self.slots if not slot.busy and wanted in (None, slot.seq)]
        if not idle:
            return None
        oldest = min(idle, key=lambda slot: slot.last_used)
        if not self.similarity:
            return oldest
        best = max(idle, key=lambda slot: (self.reusable(slot, prompt), -slot.last_used))
        return best if self.reusable(best, prompt) >= self.similarity * len(prompt) else oldest

    def reusable(self, slot: Slot, prompt: list[int]) -> int:
        """Tokens of the prompt the slot holds already; the last one is always computed anew, for its logits."""
        n = min(common_prefix(slot.tokens[: slot.n_reusable], prompt), len(prompt) - 1)
        return n - n % self.border

    def keep(self, slot: Slot, n: int) -> None:
        """Cut the slot's memory back to its first n tokens; a memory that cannot be cut there is emptied."""
        slot.last_used = next(self._clock)
        if n == slot.n_computed:
            return
        if not self.cells.remove(slot.seq, n):
            self.cells.remove(slot.seq, 0)
            n = 0
        slot.n_computed = n
        slot.n_reusable = min(slot.n_reusable, n)

    def make_room(self, n_needed: int) -> int:
        """How many cells too few there are for this many more tokens, after forgetting idle prefixes."""
        if not self.shared:
            return 0
        free = self.cells.n_ctx - sum(slot.n_computed for slot in self.slots)
        for slot in sorted(self.slots, key=lambda slot: slot.last_used):
            if free >= n_needed:
                return 0
            if not slot.busy and slot.n_computed:
                free += slot.n_computed
                self.keep(slot, 0)
                slot.tokens = []
        return max(0, n_needed - free)
