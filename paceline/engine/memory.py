"""The target's memory: which slot keeps which prefix, rolling back, making room. Knows slots, not requests' wishes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Protocol

from paceline.engine.slot import Slot
from paceline.errors import RequestError

RESERVE = 16  # a sixteenth of the memory is left for running answers when another request comes


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

    def choose(self, prompt: list[int], wanted: int | None = None, adapter: str | None = None) -> Slot | None:
        """The idle slot that remembers most of this prompt, else the one unused for longest."""
        idle = [slot for slot in self.slots if not slot.busy and wanted in (None, slot.seq)]
        if not idle:
            return None
        oldest = min(idle, key=lambda slot: slot.last_used)
        if not self.similarity:
            return oldest
        best = max(idle, key=lambda slot: (self.reusable(slot, prompt, adapter), -slot.last_used))
        return best if self.reusable(best, prompt, adapter) >= self.similarity * len(prompt) else oldest

    def reusable(self, slot: Slot, prompt: list[int], adapter: str | None = None) -> int:
        """Tokens of the prompt the slot holds already; the last one is always computed anew, for its logits."""
        if slot.adapter != adapter:
            return 0
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

    def clear(self) -> None:
        """Nothing is remembered any more."""
        for slot in self.slots:
            slot.tokens, slot.n_computed, slot.n_reusable = [], 0, 0

    def has_room(self, n: int) -> bool:
        """Whether a request of this many tokens can come and the running ones go on for a while; a lone one always."""
        busy = [slot for slot in self.slots if slot.busy]
        if not self.shared or not busy:
            return True
        n_used = sum(len(slot.tokens) for slot in busy)
        return n_used + n + self.cells.n_ctx // RESERVE <= self.cells.n_ctx

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

    # -- slots between requests

    def idle_place(self) -> tuple[int, int]:
        """The slot that remembers least, and how much that is."""
        slot = min(self.slots, key=lambda slot: slot.n_computed)
        return slot.seq, slot.n_computed

    def idle_tokens(self, seq: int) -> list[int]:
        """What an idle slot remembers."""
        slot = self._idle(seq)
        return slot.tokens[: slot.n_computed]

    def forget(self, seq: int) -> int:
        """Empty an idle slot; returns how many tokens it held."""
        slot = self._idle(seq)
        n = slot.n_computed
        self.keep(slot, 0)
        slot.tokens = []
        return n

    def remember(self, seq: int, tokens: list[int]) -> None:
        """The slot's memory was filled from outside with these tokens; where borders count, nobody knows theirs."""
        slot = self._idle(seq)
        slot.tokens, slot.n_computed, slot.adapter = tokens, len(tokens), None
        slot.n_reusable = 0 if self.border > 1 else len(tokens)

    def _idle(self, seq: int) -> Slot:
        slot = self.slots[seq]
        if slot.busy:
            raise RequestError(f"slot {seq} is busy; wait for its request to end")
        return slot
