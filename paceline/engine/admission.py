"""Who gets a slot, and who has to leave it for a while. Knows the queue and the memory; computes nothing."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from paceline.drafters.proposal import Proposal
from paceline.engine.active import ActiveRequest
from paceline.engine.drafting import Drafting
from paceline.engine.endings import Endings
from paceline.engine.memory import Memory
from paceline.engine.request import Finished, Request, Started, Timings, failed
from paceline.engine.scheduler import Queue
from paceline.engine.slot import Clock, Slot
from paceline.llama.sampler import Sampler


class Admission:
    """`sampler_of` makes what a request draws with."""

    def __init__(
        self,
        slots: list[Slot],
        queue: Queue,
        memory: Memory,
        drafting: Drafting,
        endings: Endings,
        sampler_of: Callable[[Request], Sampler],
    ) -> None:
        self._slots = slots
        self._queue = queue
        self._memory = memory
        self._drafting = drafting
        self._endings = endings
        self._sampler_of = sampler_of
        self._short = False  # of memory for somebody who waits

    def admit(self) -> None:
        self._short = False
        self._queue.offer(self._place)
        for slot in self._slots:
            if slot.active and slot.active.cancelled:
                self._endings.finish(slot, "cancelled")

    def _place(self, active: ActiveRequest) -> bool:
        if active.cancelled:
            active.emit(Finished("cancelled", active.paused.timings() if active.paused else Timings()))
            return True
        request = active.request
        tokens = active.paused.tokens if active.paused else request.tokens
        slot = self._memory.choose(tokens, request.slot, request.adapter)
        # Nobody overtakes a request that waits for memory, or it might wait for ever.
        self._short = self._short or (slot is not None and not self._may_come(active, len(tokens)))
        if slot is None or self._short:
            return False
        try:
            self._start(slot, active)
        except Exception as error:
            if slot.busy:
                self._endings.fail(slot, error)
            else:
                active.emit(failed(error))
        return True

    def _may_come(self, active: ActiveRequest, n_tokens: int) -> bool:
        running = [slot.active for slot in self._slots if slot.active]
        if running and (active.suspect or any(other.suspect for other in running)):
            return False
        return self._memory.has_room(n_tokens)

    def _start(self, slot: Slot, active: ActiveRequest) -> None:
        if active.paused:
            self._go_on(slot, active, active.paused)
            return
        request, prompt = active.request, active.request.tokens
        sampler = self._sampler_of(request)
        sampler.prime(prompt)
        sampler.watch(request.n_logprobs if request.sampled_probs else None)
        self._memory.take(slot, prompt, request.adapter, reuse=request.cache_prompt)
        slot.active, slot.sampler, slot.draft = active, sampler, Proposal()
        slot.tokens, slot.known, slot.n_dropped = list(prompt), [], 0
        slot.n_prompt, slot.n_cached, slot.n_steps = len(prompt), slot.n_computed, 0
        slot.clock = Clock(request.submitted, perf_counter())
        self._memory.set_idle_aside()
        self._drafting.begin(slot)
        active.emit(Started(slot.seq))
        if request.resume:
            slot.resume(request.resume)
        slot.tell_progress(slot.n_computed)

    def _go_on(self, slot: Slot, active: ActiveRequest, paused: Slot) -> None:
        """What was written before the pause is computed again like a prompt, as far as it is not in memory."""
        self._memory.take(slot, paused.tokens, active.request.adapter)
        slot.take_over(paused)
        slot.active, active.paused = active, None
        self._drafting.begin(slot)
        slot.add_stats(paused.stats.values())
        active.emit(Started(slot.seq))

    def pause(self, slot: Slot) -> None:
        """No room: the request waits with all it has, before everybody else. Its memory may be forgotten."""
        assert slot.active
        slot.active.paused = slot.copy()
        self._queue.push_front(slot.active)
        self._drafting.end(slot)
        slot.candidates.clear()
        slot.active = slot.sampler = None

    def start_afresh(self) -> None:
        """Forgotten cells still hold what was computed: empty all memory, and everybody's text is read again."""
        for slot in sorted(self._slots, key=lambda slot: -slot.clock.admitted):
            if slot.busy:
                self.pause(slot)
        self._memory.clear()
