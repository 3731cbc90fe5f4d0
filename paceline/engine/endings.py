"""How requests end: well, badly, or all at once. Knows slots, and who has to hear of it."""

from __future__ import annotations

import logging

from paceline.engine.active import ActiveRequest
from paceline.engine.drafting import Drafting
from paceline.engine.memory import Memory
from paceline.engine.request import Finished, failed
from paceline.engine.scheduler import Queue
from paceline.engine.slot import Slot
from paceline.errors import PacelineError

log = logging.getLogger("paceline")


class Endings:
    """`n_finished` counts the requests that had a slot and have left it for good."""

    def __init__(self, slots: list[Slot], memory: Memory, queue: Queue, drafting: Drafting) -> None:
        self._slots = slots
        self._memory = memory
        self._queue = queue
        self._drafting = drafting
        self.n_finished = 0

    def finish(self, slot: Slot, reason: str) -> None:
        active = self._release(slot)
        self._end_group(active)
        active.emit(Finished(reason, slot.timings()))

    def fail(self, slot: Slot, error: Exception) -> None:
        """One request's trouble: its slot is emptied, the others go on."""
        if not isinstance(error, PacelineError):
            log.error("a request failed", exc_info=error)
        active = self._release(slot)
        self._memory.empty(slot)
        active.emit(failed(error, slot.timings()))

    def fail_all(self, error: Exception) -> None:
        """Nothing can be computed any more; everyone hears why, and the memory starts afresh."""
        for slot in self._slots:
            if slot.busy:
                self.fail(slot, error)
        for active in self._queue.drain():
            active.emit(failed(error))
        self._memory.clear()

    def _release(self, slot: Slot) -> ActiveRequest:
        assert slot.active and slot.sampler
        self._drafting.end(slot)
        active, slot.active = slot.active, None
        self.n_finished += 1
        slot.sampler.close()
        slot.sampler = None
        return active

    def _end_group(self, done: ActiveRequest) -> None:
        """With the first of a group the others end too, as soon as they have written something."""
        if done.request.group is not None:
            written = [active for active in self._queue if active.paused]
            for active in [*written, *(slot.active for slot in self._slots if slot.active)]:
                if active.request.group == done.request.group:
                    active.over = True
