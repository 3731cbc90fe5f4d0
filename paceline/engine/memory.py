"""The target's memory: which slot keeps which prefix, rolling back, making room, setting aside. Knows slots, not
requests' wishes."""

from __future__ import annotations

import logging
from itertools import count
from typing import Protocol

from paceline.engine.checkpoints import Checkpoints, Markable
from paceline.engine.prompt_cache import LEAST, Kept, PromptCache, common_prefix
from paceline.engine.slot import Slot
from paceline.errors import PacelineError, RequestError
from paceline.llama.saved import Bytes

log = logging.getLogger("paceline")

RESERVE = 16  # a sixteenth of the memory is left for running answers when another request comes


class Cells(Markable, Protocol):
    """What of a context the memory needs."""

    n_ctx: int

    @property
    def can_shift(self) -> bool: ...
    def remove(self, seq: int, start: int, end: int = -1) -> bool: ...
    def shift(self, seq: int, start: int, delta: int) -> None: ...
    def state_size(self, seq: int) -> int: ...
    def get_state(self, seq: int) -> Bytes: ...
    def set_state(self, seq: int, state: Bytes) -> None: ...
    def clear(self) -> None: ...


class Memory:
    """Cells of all slots. `shared` says whether they come out of one pool or each slot has its own range.

    A prefix is reused up to a multiple of `border` only. A slot is chosen for its prefix when that is at least
    `similarity` of the prompt; with none asked for, nobody looks. What slots have to forget goes to the `cache`, where
    there is one; with `aside` also what they hold when somebody else comes, in a shared memory.
    """

    def __init__(
        self,
        cells: Cells,
        slots: list[Slot],
        *,
        shared: bool,
        border: int,
        similarity: float,
        cache: PromptCache | None = None,
        aside: bool = False,
    ) -> None:
        self.cells = cells
        self.slots = slots
        self.shared = shared
        self.border = border
        self.similarity = similarity
        self.cache = cache
        self._aside = aside and shared and cache is not None
        if self._aside:
            log.debug("idle slots move to the prompt cache when a request comes: __TEST_TAG_CACHE_IDLE_SLOTS_ENABLED__")
        self._clock = count(1)
        self.checkpoints = Checkpoints(cells)

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

    def take(self, slot: Slot, prompt: list[int], adapter: str | None = None, *, reuse: bool = True) -> None:
        """A request comes into the slot: as much of its prompt as is remembered stays, or is brought back there."""
        n = self.reusable(slot, prompt, adapter) if reuse else 0
        if self.cache:
            if 2 * n < slot.n_reusable:
                self._set_aside(slot)
            found = self.cache.find(prompt, adapter, n) if reuse else None
            if found and self._bring_back(slot, found):
                n = self.reusable(slot, prompt, adapter)
        self.keep(slot, n)
        slot.adapter = adapter

    def reusable(self, slot: Slot, prompt: list[int], adapter: str | None = None) -> int:
        """Tokens of the prompt the slot holds already; the last one is always computed anew, for its logits."""
        if slot.adapter != adapter:
            return 0
        n = min(common_prefix(slot.tokens[: slot.n_reusable], prompt), len(prompt) - 1)
        return n - n % self.border

    def keep(self, slot: Slot, n: int) -> None:
        """Cut the slot's memory back to its first n tokens. One that cannot be cut there goes back to its checkpoint,
        and the tokens since are computed again; without one it is emptied."""
        slot.last_used = next(self._clock)
        slot.n_again = 0
        self.checkpoints.cut(slot.seq, n)
        if n == slot.n_computed:
            return
        if not self.cells.remove(slot.seq, n):
            n = self.checkpoints.restore(slot.seq, n)
            if not n:
                self.cells.remove(slot.seq, 0)
        slot.n_computed = n
        slot.n_reusable = min(slot.n_reusable, n)

    def shift(self, slot: Slot, start: int, end: int) -> None:
        """The text goes on without these tokens. The rest moves up; where that cannot be done, or would not give the
        bits of the text as it is now, it is to be read again."""
        del slot.tokens[start:end]
        slot.n_dropped += end - start
        self.checkpoints.cut(slot.seq, start)
        moves = self.border == 1 and self.cells.can_shift and end <= slot.n_computed
        if moves and self.cells.remove(slot.seq, start, end):
            self.cells.shift(slot.seq, end, start - end)
            slot.n_computed -= end - start
            slot.n_reusable = slot.n_computed
        else:
            n = min(start, slot.n_reusable)
            self.keep(slot, n - n % self.border)

    def empty(self, slot: Slot) -> None:
        """The slot remembers nothing, and is the first to be taken."""
        self.keep(slot, 0)
        slot.tokens, slot.last_used = [], 0

    def clear(self) -> None:
        """Nothing is remembered any more."""
        for slot in self.slots:
            slot.tokens, slot.n_computed, slot.n_reusable, slot.n_again = [], 0, 0, 0
            self.checkpoints.cut(slot.seq, 0)
        self.cells.clear()

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
                self._set_aside(slot)
                self.empty(slot)
        return max(0, n_needed - free)

    # -- what no slot has room for

    def set_idle_aside(self) -> None:
        """Every token of a shared memory is looked at for every other: what is idle makes room."""
        if self._aside:
            for slot in self.slots:
                if not slot.busy and slot.n_computed and self._set_aside(slot):
                    self.empty(slot)

    def _set_aside(self, slot: Slot) -> bool:
        """Keep what of a slot may serve later; answers whether it can be forgotten without loss."""
        n = slot.n_reusable - slot.n_reusable % self.border
        tokens = slot.tokens[:n]
        if self.cache is None or n < LEAST or self.cache.covers(tokens, slot.adapter):
            return True
        self.keep(slot, n)
        if slot.n_computed < n or not self.cache.takes(self.cells.state_size(slot.seq)):
            return False
        self.cache.put(Kept(tokens, self.cells.get_state(slot.seq), slot.adapter))
        log.debug("slot %d: %d tokens are set aside: __TEST_TAG_CACHE_IDLE_SLOT__", slot.seq, n)
        return True

    def _bring_back(self, slot: Slot, kept: Kept) -> bool:
        """Fill the slot with what was set aside, if there is room for it; what it held is gone in any case but that."""
        n = len(kept.tokens)
        if self.shared and n + sum(slot.n_computed for slot in self.slots if slot.busy) > self.cells.n_ctx:
            return False
        log.debug("updating prompt cache: %d tokens are brought back to slot %d", n, slot.seq)
        self.empty(slot)
        self.make_room(n)
        try:
            self.cells.set_state(slot.seq, kept.state)
        except PacelineError as error:
            log.warning("a prompt that was set aside is read again: %s", error)
            return False
        slot.tokens, slot.n_computed, slot.n_reusable, slot.adapter = list(kept.tokens), n, n, kept.adapter
        return True

    # -- slots between requests

    def idle_place(self) -> tuple[int, int]:
        """The slot that remembers least, and how much that is. What cannot be cut counts as full: nothing measured
        after it could be taken back."""
        slot = min(self.slots, key=lambda slot: slot.n_computed)
        cuts = self.cells.n_rollback is None or not slot.n_computed
        return slot.seq, slot.n_computed if cuts else self.cells.n_ctx

    def idle_tokens(self, seq: int) -> list[int]:
        """What an idle slot remembers."""
        slot = self._idle(seq)
        return slot.tokens[: slot.n_computed]

    def forget(self, seq: int) -> int:
        """Empty an idle slot; returns how many tokens it held."""
        slot = self._idle(seq)
        n = slot.n_computed
        self.empty(slot)
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
